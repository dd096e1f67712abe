from pathlib import Path

import pytest

from tailrace.cli.app import _run

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path


def test_init_prints_the_next_steps(capsys: Capture, here: Path) -> None:
    assert _run(["init", "my shop"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    first, empty, title, *steps = shown.err.splitlines()
    assert "'my-shop'" in first
    assert (empty, title) == ("", "What to do next:")
    commands = [step[27:] for step in steps]
    assert commands[:2] == ["cd 'my shop'", "pytest"]
    assert all(command.startswith("tailrace ") for command in commands[2:])
    assert all(step[26] == " " != step[2] for step in steps), "aligned"
    readme = (here / "my shop" / "README.md").read_text()
    assert [command for command in commands[1:] if command not in readme] == [], "the README explains each"


def test_a_folder_in_use_exits_with_2_and_a_fix(capsys: Capture) -> None:
    assert _run(["init", "shop"]) == 0
    capsys.readouterr()
    assert _run(["init", "shop"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "error: the folder shop already exists and is not empty [OPTION_REFUSED]"
    assert lines[-1].startswith("  fix: ")


def test_a_name_is_required(capsys: Capture) -> None:
    assert _run(["init"]) == 2
    assert "Usage:" in capsys.readouterr().err
