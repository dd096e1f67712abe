"""Where Tailrace keeps its files: one cache folder and one state folder for each user, and one in memory.

``TAILRACE_HOME`` moves the first two. It is read at each call, so that a test or a notebook may set it at any time.
"""

import hashlib
import os
import shutil
from pathlib import Path

import platformdirs
import psutil

_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the user's own is made in it
_ROOM_BYTES = 6 * 2**30
"""Twice what a benchmark's broker has been seen to hold at a time."""


def cache_dir() -> Path:
    """Return the folder of what can be fetched again: jars, a Java runtime. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "cache" if home else platformdirs.user_cache_path("tailrace")


def state_dir() -> Path:
    """Return the folder of what cannot be fetched again: brokers and their data. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "state" if home else platformdirs.user_state_path("tailrace")


def memory_dir() -> Path | None:
    """Return the folder, in memory, for the logs of brokers that end with a program; None where there is little room.

    There is one for each state folder, where these brokers are known.
    """
    known_in = hashlib.sha256(str(state_dir()).encode()).hexdigest()[:12]
    folder = _MEMORY / f"tailrace-{os.getuid()}-{known_in}"
    try:
        room = min(shutil.disk_usage(_MEMORY).free, psutil.virtual_memory().available)
        folder.mkdir(mode=0o700, exist_ok=True)
        is_ours = folder.stat().st_uid == os.getuid()
    except OSError:
        return None
    return folder if is_ours and room >= _ROOM_BYTES else None


def _absolute(home: str) -> Path:
    # Child processes run in folders of their own, where a relative path would mean another place.
    return Path(home).expanduser().absolute()
