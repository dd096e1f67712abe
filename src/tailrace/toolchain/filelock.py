"""A lock between processes, based on a file.

The operating system releases the lock when its holder ends in any way, so there are no stale locks.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

END_HOLDER = "end that process and try again"
"""The fix if the lock did not become free in time."""

_POLL_S = 0.1


class LockTimeoutError(Exception):
    """Another process held the lock for longer than the timeout."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder}")
        self.holder = holder


@contextmanager
def exclusive(path: Path, *, on_wait: Callable[[str], None], timeout_s: float = 600.0) -> Iterator[None]:
    """Hold the lock at ``path`` for as long as the block runs.

    Args:
        path: The lock file. Its folder is created if necessary. The file is never removed: a process that waits on
            a removed file would not exclude anyone.
        on_wait: Called once with the holder's process id if the lock is not free immediately.
        timeout_s: How long to wait.

    Raises:
        LockTimeoutError: The lock did not become free in time.
        OSError: The file cannot be created or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        deadline_s = time.monotonic() + timeout_s
        waiting = False
        while not _try_lock(file.fileno()):
            if not waiting:
                waiting = True
                on_wait(_holder(path))
            if time.monotonic() >= deadline_s:
                raise LockTimeoutError(_holder(path))
            time.sleep(_POLL_S)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    # A new holder may not have written its process id yet.
    return path.read_text(encoding="ascii").strip() or "unknown"
