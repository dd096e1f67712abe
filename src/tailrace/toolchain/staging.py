"""Folders in which something is put together before it appears, whole, under its final name.

A process that is killed leaves its folder behind. The next one removes it, which is safe because both the
making and the removing happen under the same lock.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "staging-"


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Give a new, empty folder inside ``parent``, and remove it and all that earlier runs left there.

    The caller holds the lock that guards ``parent``.
    """
    for leftover in parent.glob(f"{_PREFIX}*"):
        # A fetching child of a killed process may still write for a moment: what it adds is for the next run.
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
