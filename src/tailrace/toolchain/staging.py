"""Temporary folders: files are completed there before they get their final names.

A killed process leaves its folder behind. The next process removes it. That is safe because every process holds the
same lock while it creates or removes such a folder.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "staging-"


@contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Yield a new folder inside ``parent`` and remove it at the end; remove leftovers of earlier runs first.

    The caller must hold the lock of ``parent``.
    """
    for leftover in parent.glob(f"{_PREFIX}*"):
        # A child of a killed process may still be writing: the next run removes the rest.
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
