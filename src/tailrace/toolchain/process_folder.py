"""The folder of a background process: its record, its output, and the lock that tells whether it runs.

The process inherits the lock and holds it while it runs. So a reused process id cannot cause a mistake, and a killed
process needs no manual clean-up.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tailrace.errors import NAME_FIX, OptionRefused

_PROBES_TIMEOUT_S = 5.0
"""How long a start waits for other processes that are checking whether the process runs."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def require_name(kind: str, name: str) -> str:
    """Return the name of a broker or cluster, which becomes the name of its folder.

    Raises:
        OptionRefused: It has other characters, or is too long.
    """
    if not _NAME.fullmatch(name):
        raise OptionRefused(f"invalid {kind} name {name!r}", fix=NAME_FIX)
    return name


class FolderBusyError(Exception):
    """A process runs in the folder, or another program is starting one."""


class ProcessFolder:
    """The folder of one background process."""

    def __init__(self, path: Path, record: str = "process.json") -> None:
        """Name the folder.

        Args:
            path: The folder; it may not exist yet.
            record: The file name of its record.
        """
        self.path = path
        self._record = path / record

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Create the folder and hold its lock. The process inherits the lock; this program closes its own copy.

        Raises:
            FolderBusyError: A process runs in the folder, or another program is starting one.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path / "running.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(lock)
            yield lock
        finally:
            os.close(lock)

    def _take(self, lock: int) -> None:
        """Take the exclusive lock; wait for probes of other processes, which hold a shared lock for a moment."""
        deadline = time.monotonic() + _PROBES_TIMEOUT_S
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as taken:
                if self.is_running() or time.monotonic() > deadline:
                    raise FolderBusyError(self.path.name) from taken
                time.sleep(0.01)
            else:
                return

    def is_running(self) -> bool:
        """Return whether a process is alive and holds the lock of this folder.

        The probe takes a shared lock: with an exclusive one, two concurrent probes would each mistake the other for a
        running process.
        """
        try:
            lock = os.open(self.path / "running.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def write_record(self, record: Mapping[str, Any]) -> None:
        """Replace the description of the process."""
        temporary = self._record.with_suffix(".new")
        temporary.write_text(json.dumps(record))
        temporary.replace(self._record)

    def read_record(self) -> dict[str, Any] | None:
        """Return the description of the process, or None if there is no valid one."""
        try:
            record = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def forget_record(self) -> None:
        """Remove the description of an earlier process."""
        self._record.unlink(missing_ok=True)

    def await_end(self, pid: int, timeout_s: float) -> None:
        """Wait until the process has ended; kill it after the timeout. SIGTERM must have been sent."""
        deadline = time.monotonic() + timeout_s
        while self.is_running():
            if time.monotonic() > deadline:
                send_signal(pid, signal.SIGKILL)
                deadline += timeout_s
            time.sleep(0.05)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have just ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def printed_reason(output: str) -> str:
    """Return the line in which a Java program names the reason for its end."""
    for pattern in (
        r"^Caused by: [\w.$]+: (.+)$",
        r"^[\w.$]+(?:Exception|Error): (.+)$",
        r"(?:ERROR|FATAL|Error:) (.+)$",
    ):
        if matches := re.findall(pattern, output, re.MULTILINE):
            return str(matches[-1]).strip()
    return (output.strip().splitlines() or ["it printed nothing"])[-1]
