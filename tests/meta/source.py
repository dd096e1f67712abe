"""The package's source as the meta tests read it."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tailrace"


def source_files() -> list[Path]:
    """Every Python file of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source below {PACKAGE}"
    return files


def name_of(path: Path) -> str:
    """A file as a reader names it: relative to the package."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))
