"""A Python for an engine that is not published for the one that runs Tailrace."""

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST = (3, 11)
"""What the lock files were made for."""

_USUAL_PLACES = ("~/.pyenv/versions/{version}.*/bin/python", "~/.local/share/uv/python/cpython-{version}.*/bin/python3")
_ASK_TIMEOUT_S = 20.0


def find_python(newest: tuple[int, int] | None) -> Path | None:
    """Return a Python not newer than ``newest``: the one that runs this, where it fits, or one that lies around."""
    if newest is None or sys.version_info[:2] <= newest:
        return Path(sys.executable)
    for minor in range(newest[1], OLDEST[1] - 1, -1):
        for candidate in _candidates(f"3.{minor}"):
            if _is(candidate, f"3.{minor}"):
                return candidate
    return None


def _candidates(version: str) -> Iterator[Path]:
    if (found := shutil.which(f"python{version}")) is not None:
        yield Path(found)
    for pattern in _USUAL_PLACES:
        place = os.path.expanduser(pattern.format(version=version))  # noqa: PTH111 - a pattern, not a path
        yield from map(Path, sorted(glob.glob(place), reverse=True))  # noqa: PTH207 - an absolute pattern


def _is(python: Path, version: str) -> bool:
    """Whether it runs and is what its name says; a version manager's script may be neither."""
    ask = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [str(python), "-I", "-c", ask], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.stdout.strip() == version
