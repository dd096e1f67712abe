"""Where Tailrace keeps what outlives a process: one cache folder and one state folder for each user.

``TAILRACE_HOME`` moves both. It is read at each call, so that a test or a notebook may set it at any time.
"""

import os
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return the folder of what can be fetched again: jars, a Java runtime. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "cache" if home else platformdirs.user_cache_path("tailrace")


def state_dir() -> Path:
    """Return the folder of what cannot be fetched again: brokers and their data. It may not exist yet."""
    home = os.environ.get("TAILRACE_HOME")
    return _absolute(home) / "state" if home else platformdirs.user_state_path("tailrace")


def _absolute(home: str) -> Path:
    # Child processes run in folders of their own, where a relative path would mean another place.
    return Path(home).expanduser().absolute()
