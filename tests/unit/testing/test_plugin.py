"""What pytest gets from Tailrace, in a pytest of its own."""

import subprocess
import sys
from pathlib import Path

import pytest


def collected(folder: Path, *options: str) -> list[str]:
    """The tests that pytest finds in a folder with one test in every mode."""
    (folder / "test_it.py").write_text("def test_it(every_mode):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return [line for line in done.stdout.splitlines() if line.startswith("test_it.py::")]


def test_a_test_is_run_in_every_mode(tmp_path: Path) -> None:
    assert collected(tmp_path) == [f"test_it.py::test_it[{mode}]" for mode in ("batch", "microbatch", "realtime")]


@pytest.mark.parametrize("chosen", [["realtime"], ["realtime", "batch"]])
def test_or_in_the_modes_that_are_chosen(tmp_path: Path, chosen: list[str]) -> None:
    options = [word for mode in chosen for word in ("--tailrace-mode", mode)]
    assert collected(tmp_path, *options) == [f"test_it.py::test_it[{mode}]" for mode in chosen]


def test_a_mode_that_there_is_not_is_refused(tmp_path: Path) -> None:
    assert collected(tmp_path, "--tailrace-mode", "continuous") == []
