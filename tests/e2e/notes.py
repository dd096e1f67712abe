"""The notes that runs keep in their checkpoints."""

import json
from pathlib import Path
from typing import Any


def note_of(checkpoint: str | Path) -> dict[str, Any]:
    """The last note in a checkpoint."""
    note: dict[str, Any] = json.loads((_folder(checkpoint) / str(_last(checkpoint))).read_text())
    return note


def noted_at(checkpoint: str | Path) -> float:
    """When the last note was written, in seconds since 1970."""
    return (_folder(checkpoint) / str(_last(checkpoint))).stat().st_mtime


def add_note(checkpoint: str | Path, text: str) -> None:
    """Add a note, which is the last one from now on."""
    _folder(checkpoint).mkdir(exist_ok=True)
    (_folder(checkpoint) / str(_last(checkpoint) + 1)).write_text(text)


def change_note(checkpoint: str | Path, **parts: Any) -> None:
    """Add a note that differs from the last one in some parts."""
    add_note(checkpoint, json.dumps(note_of(checkpoint) | parts))


def _folder(checkpoint: str | Path) -> Path:
    return Path(checkpoint) / "tailrace-progress"


def _last(checkpoint: str | Path) -> int:
    return max((int(file.name) for file in _folder(checkpoint).iterdir() if file.name.isdigit()), default=-1)
