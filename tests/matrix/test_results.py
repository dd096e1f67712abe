"""Reading pytest's result, and what a command makes of it."""

import re
import sys
import threading
import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tailrace import doctor

from . import javas, pythons, report
from .pytest_run import ROOT, PytestRun, read_counts, run_pytest
from .report import NotAvailable, SetupFailed, check_all

PASSED = PytestRun(0, {"passed": 3}, 1.0, "")
FAILED = PytestRun(1, {"failed": 1, "passed": 2}, 1.4, "E  assert 1 == 2")
READS_ENVIRONMENT = """\
import os

def test_it():
    assert os.environ["GIVEN"] == "yes"
    assert "PYTHONPATH" not in os.environ
"""


@pytest.mark.parametrize(
    ("output", "counts"),
    [
        ("....\n1902 passed in 83.92s (0:01:23)\n", {"passed": 1902}),
        ("1 failed, 3 passed, 2 skipped in 0.50s\n", {"failed": 1, "passed": 3, "skipped": 2}),
        ("=== 4 passed, 1 warning in 0.10s ===\n", {"passed": 4, "warning": 1}),
        ("!!! Interrupted: 2 errors during collection !!!\n2 errors in 1.57s\n", {"error": 2}),
        ("a test printed this:\n9 passed in 1.00s\n1 failed in 2.00s\n", {"failed": 1}),
        ("no tests ran in 0.01s\n", {}),
        ("Fatal Python error: Segmentation fault\n", {}),
        ("", {}),
    ],
)
def test_the_closing_line_is_read(output: str, counts: dict[str, int]) -> None:
    assert read_counts(output) == counts


@pytest.mark.parametrize(
    ("run", "ok"),
    [
        (PASSED, True),
        (FAILED, False),
        (PytestRun(0, {}, 1.0, ""), False),
        (PytestRun(0, {"skipped": 5}, 1.0, ""), False),
        (PytestRun(139, {"passed": 3}, 1.0, ""), False),
    ],
    ids=["passed", "failed", "no closing line", "all skipped", "crashed at exit"],
)
def test_only_tests_that_ran_and_passed_count(run: PytestRun, ok: bool) -> None:
    assert run.ok is ok


def test_a_real_pytest_runs_without_the_callers_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(READS_ENVIRONMENT, encoding="utf-8")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    run = run_pytest(Path(sys.executable), [str(tmp_path / "test_it.py")], {"GIVEN": "yes"})
    assert run.ok, run.output
    assert run.counts == {"passed": 1}


def test_each_version_gets_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def check(version: str) -> tuple[str, PytestRun]:
        if version == "3":
            raise NotAvailable("no build")
        return f"{version}.1", PASSED

    assert check_all("Python", ["1", "2", "3"], ["1"], check) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Python 1.1: 3 passed, 1 s",
        "Python 2.1: 3 passed, 1 s",
        "Python 3: not available here: no build",
    ]


def test_a_failure_shows_the_output_and_the_others_still_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_all("Java", ["1", "2"], [], lambda version: (version, FAILED if version == "1" else PASSED)) == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["Java 1: FAILED: 1 failed, 2 passed, 1 s", "Java 2: 3 passed, 1 s"]
    assert "assert 1 == 2" in printed.err


@pytest.mark.parametrize(
    ("error", "required", "exit_code", "line"),
    [
        (NotAvailable("no build"), [], 0, "Java 1: not available here: no build"),
        (NotAvailable("no build"), ["1"], 1, "Java 1: FAILED: not available here: no build"),
        (SetupFailed("pip failed"), [], 1, "Java 1: FAILED: pip failed"),
    ],
    ids=["optional", "required", "not installable"],
)
def test_what_is_missing_fails_if_it_is_required(
    capsys: pytest.CaptureFixture[str], error: Exception, required: list[str], exit_code: int, line: str
) -> None:
    def check(_version: str) -> tuple[str, PytestRun]:
        raise error

    assert check_all("Java", ["1"], required, check) == exit_code
    assert capsys.readouterr().out.splitlines() == [line]


def test_jobs_run_at_the_same_time_and_lines_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    both = threading.Barrier(2, timeout=20)

    def check(version: str) -> tuple[str, PytestRun]:
        both.wait()
        return version, PASSED

    assert check_all("Java", ["2", "1"], [], check, jobs=2) == 0
    assert capsys.readouterr().out.splitlines() == ["Java 2: 3 passed, 1 s", "Java 1: 3 passed, 1 s"]


def test_a_required_version_that_is_not_selected_fails() -> None:
    assert check_all("Java", ["1"], ["2"], lambda version: (version, PASSED)) == 1


@pytest.mark.parametrize(
    ("words", "versions", "required"),
    [
        ([], ["17", "21"], []),
        (["21", "--require", "21"], ["21"], ["21"]),
        (["--others", "--require", "17,21"], ["21"], ["21"]),  # `make test` has proven 17
        (["17", "--others"], [], []),
    ],
)
def test_the_version_that_other_tests_use_can_be_left_out(
    words: list[str], versions: list[str], required: list[str]
) -> None:
    parser = report.arguments("Java", ["17", "21"], "")
    assert report.chosen(parser, parser.parse_args(words), ["17", "21"], default="17") == (versions, required)


@pytest.mark.parametrize("words", [["8"], ["--require", "8"]])
def test_an_unsupported_version_ends_the_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    parser = report.arguments("Java", ["17", "21"], "")
    with pytest.raises(SystemExit) as ended:
        report.chosen(parser, parser.parse_args(words), ["17", "21"], default="17")
    assert ended.value.code == 2
    assert "not a supported version: 8 (supported: 17, 21)" in capsys.readouterr().err


@pytest.mark.parametrize("command", [pythons, javas])
def test_ci_requires_every_version_that_make_test_does_not_use(
    command: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the defaults of its machine are."""
    given = re.search(rf"{command.__name__} (.*)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert given is not None
    proven: list[Sequence[str]] = []

    def check_all(_what: str, versions: Sequence[str], required: Sequence[str], *_: object) -> int:
        proven.append(versions)
        assert list(versions) == list(required)
        return 0

    monkeypatch.setattr(report, "check_all", check_all)
    monkeypatch.setattr(javas, "ensure_jars", lambda *_: None)
    for default in (*command.SUPPORTED, "4.0"):
        running = SimpleNamespace(version_info=default.split("."), major=default)
        monkeypatch.setattr(pythons, "sys", running)
        monkeypatch.setattr(javas, "ensure_java", lambda _say, running=running: running)
        assert command.main(given[1].split()) == 0
        assert {*proven.pop(), default} == {*command.SUPPORTED, default}


@pytest.mark.parametrize("version", javas.SUPPORTED)
def test_every_supported_java_is_pinned(version: str) -> None:
    lock, exact = javas.lock_of(version)
    assert exact.startswith(f"{version}.")
    hashes = re.findall(r"--hash=sha256:[0-9a-f]{64}\b", lock.read_text(encoding="utf-8"))
    assert len(hashes) >= 4, "a wheel per platform"


def test_the_supported_pythons_are_those_that_the_project_names() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"\bpython(3\.\d+)\b", makefile)), key=_number) == list(pythons.SUPPORTED)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"].startswith(f">={pythons.SUPPORTED[0]}")
    tested = [f"{major}.{minor}" for major, minor in doctor.TESTED_PYTHONS]
    assert tested == [pythons.SUPPORTED[0], pythons.SUPPORTED[-1]]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
