"""Commands in this process, as if each test had one of its own."""

import sys
from pathlib import Path

import pytest

from tailrace.cli import output


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test is a process of its own as far as --verbose, the terminal and the folder go."""
    monkeypatch.setattr(output, "_verbose", False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
