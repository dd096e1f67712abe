"""The set-up steps of a version."""

import sys

import pytest

from . import setup_step
from .report import NotAvailable, SetupFailed
from .setup_step import run_step


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_a_step_that_succeeds_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_step("pip check", python("print('fine')"), SetupFailed)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("failure", [NotAvailable, SetupFailed])
def test_a_step_that_fails_prints_its_output(capsys: pytest.CaptureFixture[str], failure: type[Exception]) -> None:
    with pytest.raises(failure, match="pip install failed with exit code 3"):
        run_step("pip install", python("print('no such package'); raise SystemExit(3)"), failure)
    assert "no such package" in capsys.readouterr().err


def test_a_step_that_does_not_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup_step, "_TIMEOUT_S", 0.2)
    with pytest.raises(SetupFailed, match=r"venv did not finish within 0\.2 s"):
        run_step("venv", python("import time; time.sleep(60)"), SetupFailed)
