"""The folders that Tailrace writes to: a cache and a state folder per user, and one in memory.

``TAILRACE_HOME`` moves the first two. It is read at each call, so tests and notebooks can set it at any time.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs
import psutil

UNWRITABLE_FIX = "free some space or grant write permission there, or set TAILRACE_HOME to another folder"
"""The fix if the cache cannot be written."""

_MEMORY = Path("/dev/shm")  # noqa: S108 - make_private creates a folder in it for this user alone
_NEEDED_BYTES = 6 * 2**30
"""A million records of 128 bytes and their results take some hundred megabytes; the engines need the rest."""


def cache_dir() -> Path:
    """Return the folder for files that can be downloaded again: jars, a Java runtime. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "cache" if home else platformdirs.user_cache_path("tailrace")


def state_dir() -> Path:
    """Return the folder for files that exist only here: brokers and their data. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "state" if home else platformdirs.user_state_path("tailrace")


@contextmanager
def memory_dir() -> Iterator[Path | None]:
    """Yield a folder in memory for the logs of temporary brokers, or None if there is too little memory.

    Each state folder has one, because the state folder lists these brokers. The last broker's program removes it.
    """
    state_hash = hashlib.sha256(str(state_dir()).encode()).hexdigest()[:12]
    folder = _MEMORY / f"tailrace-{os.getuid()}-{state_hash}"
    if not _has_free_memory() or not make_private(folder):
        yield None
        return
    try:
        yield folder
    finally:
        with suppress(OSError):  # not empty: another program's broker has its log there
            folder.rmdir()


def _has_free_memory() -> bool:
    try:
        file_system = shutil.disk_usage(_MEMORY).free
    except OSError:
        return False
    available: int = psutil.virtual_memory().available
    return min(file_system, available) >= _NEEDED_BYTES


def make_private(folder: Path) -> bool:
    """Create a folder that only this user can access, inside a folder that everyone can write to.

    Returns:
        False if the folder cannot be created, is a symbolic link, belongs to another user, or is open to others.
    """
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()  # of a link itself, not of its target
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _absolute(home: str) -> Path:
    # Child processes have other working directories, so a relative path would name another folder there.
    return Path(home).expanduser().absolute()
