"""A lock between processes, made of a file.

The operating system drops the lock when its holder ends, however it ends, so a lock is never left behind.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.1


class LockTimeoutError(Exception):
    """Another process held the lock for longer than the caller was ready to wait."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by process {holder}")
        self.holder = holder


@contextmanager
def exclusive(path: Path, *, on_wait: Callable[[str], None], patience_s: float = 600.0) -> Iterator[None]:
    """Hold the lock at ``path`` for as long as the block runs.

    Args:
        path: The lock file. Its folder is made where it does not exist; the file itself is never removed,
            because a process that waits on a removed file would lock nothing.
        on_wait: Called once with the holder's process id, if the lock is not free at once.
        patience_s: How long to wait.

    Raises:
        LockTimeoutError: The lock was not free in time.
        OSError: The file cannot be made or written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="ascii") as file:
        deadline_s = time.monotonic() + patience_s
        waiting = False
        while not _taken(file.fileno()):
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


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    # The holder may not have written its id yet.
    return path.read_text(encoding="ascii").strip() or "unknown"
