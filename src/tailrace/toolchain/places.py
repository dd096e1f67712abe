"""Where Tailrace keeps its files: one cache folder and one state folder for each user, and one in memory.

``TAILRACE_HOME`` moves the first two. It is read at each call, so that a test or a notebook may set it at any time.
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

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the user's own is made in it
_ROOM_BYTES = 6 * 2**30
"""Plenty: a million records of 128 bytes and their results are some hundred megabytes, and engines want memory, too."""


def cache_dir() -> Path:
    """Return the folder of what can be fetched again: jars, a Java runtime. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "cache" if home else platformdirs.user_cache_path("tailrace")


def state_dir() -> Path:
    """Return the folder of what cannot be fetched again: brokers and their data. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "state" if home else platformdirs.user_state_path("tailrace")


@contextmanager
def memory_dir() -> Iterator[Path | None]:
    """The folder, in memory, for the logs of brokers that end with a program; None where there is little room.

    There is one for each state folder, where these brokers are known. It is gone when the last of them is.
    """
    known_in = hashlib.sha256(str(state_dir()).encode()).hexdigest()[:12]
    folder = _MEMORY / f"tailrace-{os.getuid()}-{known_in}"
    if not _has_room() or not make_private(folder):
        yield None
        return
    try:
        yield folder
    finally:
        with suppress(OSError):  # another program's broker has its log there
            folder.rmdir()


def _has_room() -> bool:
    try:
        on_it = shutil.disk_usage(_MEMORY).free
    except OSError:
        return False
    available: int = psutil.virtual_memory().available
    return min(on_it, available) >= _ROOM_BYTES


def make_private(folder: Path) -> bool:
    """Make a folder that this user alone can use, in a place where everybody can make one.

    Returns:
        False if it cannot be made, or what is there is a link, another user's, or open to others.
    """
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()  # never what a link leads to
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _absolute(home: str) -> Path:
    # Child processes run in folders of their own, where a relative path would mean another place.
    return Path(home).expanduser().absolute()
