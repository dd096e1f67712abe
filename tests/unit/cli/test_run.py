"""What `tailrace run` says, with nothing behind it. Real runs: tests/e2e."""

import json
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from tailrace.cli.app import _run
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.slots import Slots
from tailrace.preflight.finding import Finding, advice, error, warning
from tailrace.preflight.report import CheckReport
from tailrace.prepare.options import RunOptions
from tailrace.running.ending import RepeatReason
from tailrace.running.summary import RunSummary

Capture = pytest.CaptureFixture[str]


@dataclass
class FakeRun:
    """A pipeline that was started, as far as `tailrace run` looks at it."""

    done: bool = False
    stopped: bool = False
    malformed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    batches: int = 3
    rows: int = 4711
    uncommitted: int = 0
    repeats: str = ""
    delivery: str = "at-least-once"
    lost_lineage: str = ""
    slots: Slots | None = None
    checkpoint_location: str = "/checkpoints/fraud"
    options: RunOptions | None = None
    findings: tuple[Finding, ...] = ()
    why_microbatch: tuple[Finding, ...] = ()

    def start(
        self, pipeline: Pipeline, options: RunOptions, _announce: object, *, on_confirmed: Callable[[], object]
    ) -> "FakeRun":
        self.options = options
        on_confirmed()
        return self

    @property
    def mode(self) -> Mode:
        assert self.options is not None
        return Mode.MICROBATCH if self.why_microbatch else self.options.planned_mode

    @property
    def report(self) -> CheckReport:
        return CheckReport("fraud", self.mode, self.slots, 2, self.findings)

    def wait(self, *, stop: threading.Event) -> bool:
        return self.done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True

    def summary(self) -> RunSummary:
        assert self.stopped
        assert self.options is not None
        return RunSummary(
            "fraud",
            str(self.options.planned_mode),
            12.5,
            self.batches,
            self.rows,
            self.checkpoint_location,
            self.malformed,
            uncommitted_rows=self.uncommitted,
            refused=self.refused,
            repeats=self.repeats,
            delivery=self.delivery,
        )


def run_fake(
    monkeypatch: pytest.MonkeyPatch,
    fake: FakeRun,
    *arguments: str,
    source: str = '"in", "a int"',
    sink: str = '"out"',
    more: str = "",
    exit_code: int = 0,
) -> RunOptions:
    """Run a pipeline with nothing behind it; return the options that it would have been started with."""
    Path("cli_run.py").write_text(
        f'import tailrace as tr\npipeline = tr.Pipeline("fraud", [tr.KafkaSource({source})], lambda frame: frame, '
        f"tr.KafkaSink({sink}){more})\n"
    )
    monkeypatch.delitem(sys.modules, "cli_run", raising=False)
    monkeypatch.setattr("tailrace.running.run.start_query", fake.start)
    assert _run(["run", "cli_run.py", *arguments]) == exit_code
    assert fake.options is not None
    return fake.options


def test_a_run_until_ctrl_c_prints_start_and_summary(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    options = run_fake(monkeypatch, FakeRun())
    assert (options.mode, options.once, options.checkpoint_every, options.interval_ms) == (
        Mode.REALTIME,
        False,
        "5m",
        300_000,
    )
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "fraud: in -> out, in real time: each record as it arrives",
        "progress is saved every 5m in /checkpoints/fraud",
        "Ctrl-C stops it.",
        "stopped after 12.5 s: 3 checkpoints with 4,711 records; the next start repeats nothing",
    ]


LATE = "its batch did not end within 10 s"


@pytest.mark.parametrize(
    ("mode", "uncommitted", "last"),
    [
        ("realtime", 20, "the next start repeats 20 records read since the last checkpoint"),
        ("realtime", 1, "the next start repeats 1 record read since the last checkpoint"),
        ("realtime", 0, "no record was read since the last checkpoint"),
        ("microbatch", 0, "the next start repeats the unfinished batch"),
        ("microbatch", 20, "the next start repeats the unfinished batch of 20 records"),
    ],
)
def test_a_stop_that_could_not_save_says_why_and_what_is_repeated(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, mode: str, uncommitted: int, last: str
) -> None:
    run_fake(monkeypatch, FakeRun(uncommitted=uncommitted, repeats=LATE), "--mode", mode)
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "stopped after 12.5 s: 3 checkpoints with 4,711 records",
        f"{LATE}: {last}",
    ]


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize(
    ("uncommitted", "last"),
    [
        (0, "the next start may read some records again; it repeats no result"),
        (20, "the next start may read up to 20 records again; it repeats no result"),
    ],
)
def test_an_effectively_once_query_repeats_no_result(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, mode: str, uncommitted: int, last: str
) -> None:
    fake = FakeRun(uncommitted=uncommitted, repeats=LATE, delivery="effectively-once")
    run_fake(monkeypatch, fake, "--mode", mode)
    assert capsys.readouterr().err.splitlines()[-1] == f"{LATE}: {last}"


@pytest.mark.parametrize(
    ("uncommitted", "last"),
    [
        (0, "a task had failed: the next start may repeat some of its records"),
        (1200, "a task had failed: the next start may repeat 1,200 of its records"),
    ],
)
def test_a_retry_that_did_not_read_as_far_is_not_taken_for_an_unsaved_batch(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, uncommitted: int, last: str
) -> None:
    run_fake(monkeypatch, FakeRun(uncommitted=uncommitted, repeats=RepeatReason.TASK_FAILED))
    assert capsys.readouterr().err.splitlines()[-2:] == ["stopped after 12.5 s: 3 checkpoints with 4,711 records", last]


def test_a_second_signal_says_what_is_repeated(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(FakeRun):
        def __exit__(self, *_: object) -> None:
            super().__exit__()
            raise KeyboardInterrupt

    run_fake(monkeypatch, Impatient(uncommitted=20, repeats="the stop was cut short"), exit_code=130)
    lines = capsys.readouterr().err.replace("interrupted\n", "").splitlines()
    assert lines[-2:] == [
        "stopped after 12.5 s: 3 checkpoints with 4,711 records",
        "the stop was cut short: the next start repeats 20 records read since the last checkpoint",
    ]


@pytest.mark.parametrize(("arguments", "timeout_s"), [((), 10.0), (("--stop-timeout", "1m"), 60.0)])
def test_the_time_that_a_stop_may_take_is_an_option(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], timeout_s: float
) -> None:
    assert run_fake(monkeypatch, FakeRun(), *arguments).stop_timeout_s == timeout_s


@pytest.mark.parametrize(("arguments", "tasks"), [((), None), (("--tasks", "4"), 4), (("--tasks", "auto"), "auto")])
def test_the_tasks_that_read_each_source_are_an_option(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], tasks: object
) -> None:
    assert run_fake(monkeypatch, FakeRun(), *arguments).tasks == tasks


def test_a_run_once_prints_start_and_done(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    options = run_fake(monkeypatch, FakeRun(done=True), "--once")
    assert (options.once, options.interval_ms) == (True, 300_000)
    shown = capsys.readouterr().err
    assert "progress is saved every 5m in" in shown
    assert "It ends when all existing records are processed." in shown
    assert "Ctrl-C stops it." not in shown
    assert "done after 12.5 s: 3 checkpoints" in shown
    assert shown.endswith("; the next start repeats nothing\n"), "everything is saved"


def test_a_run_once_that_was_stopped_early_is_not_done(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    options = run_fake(monkeypatch, FakeRun(uncommitted=1, repeats=LATE), "--once", "--checkpoint-every", "30s")
    assert options.interval_ms == 30_000
    shown = capsys.readouterr().err
    assert "stopped after 12.5 s" in shown
    assert "1 record read since the last checkpoint" in shown


def test_one_checkpoint_and_one_record_are_singular(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run_fake(monkeypatch, FakeRun(batches=1, rows=1, slots=Slots((1,))))
    shown = capsys.readouterr().err
    assert "1 task slot; progress" in shown
    assert shown.endswith("stopped after 12.5 s: 1 checkpoint with 1 record; the next start repeats nothing\n")


def test_micro_batch_saves_progress_with_every_batch(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_fake(monkeypatch, FakeRun(), "--mode", "microbatch", "--once").once
    shown = capsys.readouterr().err
    assert "fraud: in -> out, in micro-batches" in shown
    assert "progress is saved with every batch in /checkpoints/fraud" in shown
    assert "since the last checkpoint" not in shown


def test_several_sources_and_a_topic_column_are_described(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    source = '["a", "b"], "x int"), tr.KafkaSource(pattern="c-.*", format="bytes"'
    run_fake(monkeypatch, FakeRun(slots=Slots((4, 2))), source=source, sink='"out", topic_column="target"')
    shown = capsys.readouterr().err
    assert "fraud: a, b + topics like c-.* -> out or the topic in target, in real time" in shown
    assert "4 + 2 = 6 task slots; progress is saved" in shown


def test_lost_lineage_is_printed_at_the_start(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run_fake(monkeypatch, FakeRun(lost_lineage="outputs carry no coordinates [of theirs]"))
    assert "\nlineage: outputs carry no coordinates [of theirs]\n" in capsys.readouterr().err
    run_fake(monkeypatch, FakeRun())
    assert "lineage" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ("", "now in fraud.dead-letters"),
        (', dead_letters="broken"', "now in broken"),
        (', malformed="drop"', "dropped"),
    ],
)
def test_malformed_records_are_counted_with_their_topic(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, more: str, where: str
) -> None:
    run_fake(monkeypatch, FakeRun(malformed={"wrong_type": 2, "not_json": 1200}), more=more)
    assert f"\n1,202 records could not be read (not_json 1,200, wrong_type 2): {where}\n" in capsys.readouterr().err


def test_refused_results_are_counted_with_their_topic(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run_fake(monkeypatch, FakeRun(refused={"too_large": 1, "invalid_record": 2}))
    line = "Kafka refused 3 results (invalid_record 2, too_large 1): now in fraud.dead-letters"
    assert line in capsys.readouterr().err.splitlines()


def test_nothing_is_printed_without_malformed_records(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run_fake(monkeypatch, FakeRun())
    assert "could not be read" not in capsys.readouterr().err


def test_the_summary_is_json_on_standard_output(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    run_fake(monkeypatch, FakeRun(done=True, malformed={"not_json": 2}), "--once", "--json")
    assert json.loads(capsys.readouterr().out) == {
        "name": "fraud",
        "mode": "realtime",
        "seconds": 12.5,
        "batches": 3,
        "input_rows": 4711,
        "checkpoint": "/checkpoints/fraud",
        "malformed": {"not_json": 2},
        "why_microbatch": [],
        "python": {},
        "uncommitted_rows": 0,
        "refused": {},
        "repeats": "",
        "delivery": "at-least-once",
    }


def test_warnings_are_printed_at_the_start_but_no_advice(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    findings = (
        warning("STATE_UNBOUNDED", "the state grows", why="no watermark", fix="add one"),
        advice("RECOVERY_LONG", "a crash replays much", why="an hour", fix="a shorter one"),
    )
    run_fake(monkeypatch, FakeRun(findings=findings))
    shown = capsys.readouterr().err
    assert "warning: the state grows [STATE_UNBOUNDED]" in shown
    assert "RECOVERY_LONG" not in shown


def test_auto_prints_why_it_chose_micro_batch(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = error("PYTHON_FUNCTION", "twice is Python", why="Spark says so", fix="a built-in one")
    options = run_fake(monkeypatch, FakeRun(why_microbatch=(reason,)), "--mode", "auto")
    assert options.auto
    shown = capsys.readouterr().err
    assert "in micro-batches" in shown
    assert "not in real time: twice is Python [PYTHON_FUNCTION]" in shown


class LoggingRun(FakeRun):
    def wait(self, *, stop: threading.Event) -> bool:
        log = logging.getLogger("tailrace")
        log.warning("query %r: no Kafka broker responds at %s", "fraud", "here:9092")
        log.debug("details")
        return True


@pytest.mark.parametrize(("arguments", "more"), [((), 0), (("--verbose",), 1)])
def test_events_of_a_running_query_are_printed_once(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], more: int
) -> None:
    monkeypatch.setattr("tailrace.cli.output._verbose", False)
    run_fake(monkeypatch, LoggingRun(), *arguments)
    shown = capsys.readouterr().err
    assert shown.count("warning: query 'fraud': no Kafka broker responds at here:9092\n") == 1
    assert shown.count("debug: details\n") == more
    assert logging.getLogger("tailrace").handlers == []
