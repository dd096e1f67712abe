"""What `tailrace check` says and how it ends, with nothing behind it. Real checks: tests/e2e."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.app import _run
from tailrace.errors import JavaMissing
from tailrace.pipeline import Mode
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.slots import Slots
from tailrace.preflight.finding import Finding, advice, error, warning
from tailrace.preflight.report import CheckReport, Link, When

Capture = pytest.CaptureFixture[str]
LINKS = (Link("topic to task", 0.5, "measured"), Link("pause", 300.0, "measured", When.CHECKPOINT))
TITLE = "limit cannot run in real time, which is a sentence that is far longer than eighty columns are wide"
ERROR = error("OPERATOR_REFUSED", TITLE, why="Spark says so", fix="where(...)", where="fraud.py:8 (limit)")


def checked(monkeypatch: pytest.MonkeyPatch, *findings: Finding, arguments: tuple[str, ...] = (), **more: Any) -> int:
    """Check a pipeline with nothing behind it; return the exit code."""
    Path("cli_check.py").write_text(
        'import tailrace as tr\npipeline = tr.Pipeline("fraud", tr.KafkaSource("in", "a int"), lambda frame: frame, '
        'tr.KafkaSink("out"))\n'
    )
    monkeypatch.delitem(sys.modules, "cli_check", raising=False)
    report = CheckReport(
        "fraud", Mode.REALTIME, Slots((8, 20, 20)), 2, findings, LINKS, "/c, format 2: either mode", **more
    )
    monkeypatch.setattr("tailrace.prepare.check.check_query", lambda *_: report)
    return _run(["check", "cli_check.py", *arguments])


def test_a_report_has_tasks_latency_chain_and_findings(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, ERROR) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "tasks    read the topics      8",
        "         after shuffle 1     20",
        "         after shuffle 2     20",
        "         total               48 slots needed, 2 available; micro-batch needs 1",
        "latency  every record: about 0.5 ms (topic to task 0.5)",
        "         at a checkpoint: about 300 ms (pause 300)",
        "progress /c, format 2: either mode",
        f"error    {TITLE} [OPERATOR_REFUSED]",
        "  at:    fraud.py:8 (limit)",
        "  why:   Spark says so",
        "  fix:   where(...)",
        "fraud cannot run in real time: 1 error, 0 warnings, 0 advice",
    ]


@pytest.mark.parametrize(
    ("plan", "line"),
    [
        (DeliveryPlan(keeps_progress=True, effectively_once=True), "delivery effectively-once"),
        (
            DeliveryPlan(keeps_progress=False, effectively_once=False, reason="an aggregate: so", where="a.py:8 (agg)"),
            "delivery at-least-once: an aggregate: so (a.py:8 (agg))",
        ),
    ],
)
def test_the_delivery_is_a_line_and_data(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, plan: DeliveryPlan, line: str
) -> None:
    assert checked(monkeypatch, delivery=plan) == 0
    assert line in capsys.readouterr().err.splitlines()
    checked(monkeypatch, delivery=plan, arguments=("--json",))
    data = json.loads(capsys.readouterr().out)["delivery"]
    assert (data["effectively_once"], data["reason"]) == (plan.effectively_once, plan.reason)


def test_shared_tasks_are_shown_with_what_they_read(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    many = ", ".join(f"in-{number}" for number in range(20))
    checked(monkeypatch, reads=("a-0, a-2", many, *["b-0"] * 8))
    shown = capsys.readouterr().err.splitlines()[4:13]
    assert shown[:3] == [
        "reads    task 0: a-0, a-2",
        "         task 1: in-0, in-1, in-2, in-3, in-4, in-5, in-6, in-7 and 12 more",
        "         task 2: b-0",
    ]
    assert shown[-1] == "         and 2 more tasks"
    checked(monkeypatch, reads=("a-0", "a-1"), arguments=("--json",))
    shown_alone = capsys.readouterr()
    assert "reads" not in shown_alone.err
    assert json.loads(shown_alone.out)["reads"] == [["a-0"], ["a-1"]]


@pytest.mark.parametrize("make", [warning, advice])
def test_warnings_and_advice_exit_with_0(capsys: Capture, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    assert checked(monkeypatch, make("SOME_CODE", "something", why="so", fix="this")) == 0
    assert "fraud runs in real time: 0 errors" in capsys.readouterr().err


def test_data_goes_to_standard_output(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checked(monkeypatch, ERROR, arguments=("--json",)) == 1
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] is False
    assert data["mode"] == "realtime"
    assert data["slots"] == {"stages": [8, 20, 20], "required": 48, "available": 2}
    assert data["findings"] == [
        {
            "code": "OPERATOR_REFUSED",
            "severity": "error",
            "title": TITLE,
            "why": "Spark says so",
            "fix": "where(...)",
            "where": "fraud.py:8 (limit)",
        }
    ]


@pytest.mark.parametrize("arguments", [("missing.py",), ("missing.py", "--json"), ("x.py", "--checkpoint-every", "?")])
def test_a_check_that_cannot_run_exits_with_2(capsys: Capture, arguments: tuple[str, ...]) -> None:
    assert _run(["check", *arguments]) == 2
    shown = capsys.readouterr()
    assert "error:" in shown.err
    if "--json" in arguments:
        assert json.loads(shown.out)["ok"] is None


def test_a_check_without_java_exits_with_2(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> CheckReport:
        raise JavaMissing("no Java was found")

    Path("cli_check.py").write_text(
        'import tailrace as tr\npipeline = tr.Pipeline("fraud", tr.KafkaSource("in", "a int"), lambda frame: frame, '
        'tr.KafkaSink("out"))\n'
    )
    monkeypatch.delitem(sys.modules, "cli_check", raising=False)
    monkeypatch.setattr("tailrace.prepare.check.check_query", fail)
    assert _run(["check", "cli_check.py"]) == 2
    assert "no Java was found" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--checkpoint-every", "soon"], ["--conf", "oops"], ["--python-timeout", "0s"]])
def test_invalid_options_are_reported_as_json(capsys: Capture, wrong: list[str]) -> None:
    assert _run(["check", "cli_check.py", "--json", *wrong]) == 2
    shown = capsys.readouterr()
    answer = json.loads(shown.out)
    assert answer["ok"] is None
    assert answer["error"]["what"] in shown.err
