"""Create a project's folder: its name and its first files."""

import re
import unicodedata
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tailrace.errors import OptionRefused

# Stored under other names: otherwise the repository's own tools would run and check them.
FILES = {
    "pipeline.py": "pipeline.py.txt",
    "test_pipeline.py": "test_pipeline.py.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
LONGEST_NAME = 100
"""The dead-letter topic is named after the pipeline, and a topic's name has at most 249 characters."""
_NAME_IN_TEMPLATE = "@name@"


@dataclass(frozen=True)
class Project:
    """A new project."""

    folder: Path
    pipeline: str
    """The pipeline's name."""


def make_project(place: str) -> Project:
    """Create a folder with a pipeline, its tests and a README.

    Args:
        place: The folder, which must not exist or be empty. The pipeline gets its name.

    Raises:
        OptionRefused: The folder is not empty, cannot be created, or has a name that is no pipeline name.
    """
    if not place.strip() or not place.isprintable():
        raise _no_name(place)
    folder = Path(place)
    try:
        project = Project(folder, pipeline_name(folder.resolve().name))
        _require_empty(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in FILES.items():
            text = resources.files(__package__).joinpath("template", template).read_text(encoding="utf-8")
            (folder / name).write_text(text.replace(_NAME_IN_TEMPLATE, project.pipeline), encoding="utf-8")
    except OSError as failed:
        raise OptionRefused(
            f"the folder {place} cannot be created",
            why=failed.strerror or str(failed),
            fix="choose a folder that you can write to",
        ) from failed
    return project


def pipeline_name(folder: str) -> str:
    """Return a pipeline name for a folder: letters, digits, dot, dash and underscore.

    Raises:
        OptionRefused: No valid character is left, or the name is too long.
    """
    plain = unicodedata.normalize("NFKD", folder).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", plain).lstrip("._-").rstrip("-")
    if not name:
        raise _no_name(folder)
    if len(name) > LONGEST_NAME:
        raise OptionRefused(
            f"{folder!r} is too long for a pipeline's name",
            why="topics and folders get this name",
            fix=f"use {LONGEST_NAME} characters at most",
        )
    return name


def _require_empty(folder: Path) -> None:
    if folder.is_dir():
        if any(folder.iterdir()):
            raise OptionRefused(
                f"the folder {folder} already exists and is not empty",
                why="your files could be overwritten",
                fix="choose another name",
            )
    elif folder.exists():
        raise OptionRefused(f"{folder} already exists and is not a folder", fix="choose another name")


def _no_name(given: str) -> OptionRefused:
    return OptionRefused(
        f"invalid project name {given!r}",
        why="the folder and the pipeline get this name",
        fix="use letters, digits, dot, dash and underscore: tailrace init shop",
    )
