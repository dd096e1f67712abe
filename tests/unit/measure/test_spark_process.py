"""The process of a Spark lane without its Spark."""

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.measure import spark_process
from tailrace.measure.audit import read_progress
from tailrace.measure.lane import Cell
from tailrace.measure.spark_process import SparkSettings, _follow, spark_command
from tailrace.measure.works import Work


def a_cell(folder: Path) -> Cell:
    return Cell(Work.AGGREGATE, "b:1", "in", "out", 3, folder, 15.0, 250)


class FakeQuery:
    """A query that completes batches, and may end."""

    def __init__(self, ended: threading.Event, looks: list[list[int]], *, ends: bool = False) -> None:
        self._ended, self._looks, self._ends = ended, looks, ends

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return bool(self._looks) or not self._ends

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's name
        batches = self._looks.pop(0) if self._looks else []
        if not self._looks and not self._ends:
            self._ended.set()
        return [SimpleNamespace(json=json.dumps({"batchId": batch})) for batch in batches]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_process, "_POLL_S", 0.0)


def no_failure() -> None:
    pass


@pytest.mark.parametrize("own_interval", [None, 10.0])
@pytest.mark.parametrize("trigger", ["realtime", "microbatch"])
def test_the_command_contains_settings_and_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trigger: str, own_interval: float | None
) -> None:
    settings = SparkSettings(tailrace=False, trigger=trigger, conf={"spark.a": "b"}, checkpoint_every_s=own_interval)
    command = spark_command(settings, a_cell(tmp_path))
    assert command.argv[:3] == (sys.executable, "-m", "tailrace.measure.spark_process")
    received: list[tuple[SparkSettings, Cell]] = []
    noted: list[Path | None] = []

    @contextmanager
    def query(given: SparkSettings, cell: Cell) -> Iterator[tuple[None, None]]:
        received.append((given, cell))
        yield None, None

    monkeypatch.setattr(spark_process, "_stock_query", query)
    monkeypatch.setattr(spark_process, "_follow", lambda _query, _raise, events, *_: noted.append(events))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["spark_lane", *command.argv[3:]])
    spark_process.main()
    ((given, cell),) = received
    assert given == settings
    assert cell.checkpoint_every_s == (own_interval or 15.0)
    assert (cell.work, cell.source, cell.sink, cell.partitions, cell.trigger_every_ms) == (
        Work.AGGREGATE, "in", "out", 3, 250,
    )  # fmt: skip
    # A micro-batch has two boundaries a second, which nobody wants to know about.
    assert noted == [tmp_path / "events.jsonl" if trigger == "realtime" else None]


def test_each_batch_is_reported_once_with_its_task_times(tmp_path: Path) -> None:
    ended = threading.Event()
    query: Any = FakeQuery(ended, [[0], [0, 1], [], [0, 1, 2, 3]])
    _follow(query, no_failure, tmp_path / "events.jsonl", ended, lambda batch: {"last_end": batch * 10})
    noted = read_progress(tmp_path / "events.jsonl")
    assert [(each["batchId"], each["tasks"]) for each in noted] == [
        (number, {"last_end": number * 10}) for number in range(4)
    ]


def test_stock_spark_has_no_task_times(tmp_path: Path) -> None:
    ended = threading.Event()
    query: Any = FakeQuery(ended, [[0]])
    _follow(query, no_failure, tmp_path / "events.jsonl", ended, None)
    assert read_progress(tmp_path / "events.jsonl") == [{"batchId": 0, "tasks": None}]


def test_a_failed_query_ends_the_process_with_its_error(tmp_path: Path) -> None:
    def failure() -> None:
        raise RuntimeError("the sink is gone")

    query: Any = FakeQuery(threading.Event(), [], ends=True)
    with pytest.raises(RuntimeError, match="the sink is gone"):
        _follow(query, failure, None, threading.Event(), None)


def test_a_query_that_ends_without_an_error_ends_the_process() -> None:
    query: Any = FakeQuery(threading.Event(), [], ends=True)
    with pytest.raises(SystemExit, match="the query ended by itself"):
        _follow(query, no_failure, None, threading.Event(), None)


def test_a_work_runs_as_a_pipeline_between_the_topics_of_the_run(tmp_path: Path) -> None:
    pipeline = spark_process._pipeline_of(SparkSettings(tailrace=True, trigger="realtime"), a_cell(tmp_path))
    assert pipeline.sources[0].topics == ("in",)
    assert (pipeline.sink.topic, pipeline.sink.key) == ("out", "key")
    assert pipeline.dead_letters == "out.dead-letters"


def test_a_users_pipeline_runs_between_the_topics_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bench_users_own.py").write_text(
        "import tailrace as tr\n"
        'pipeline = tr.Pipeline("fraud", tr.KafkaSource(pattern="p-.*", schema="a int"), lambda frame: frame, '
        'tr.KafkaSink("decisions", key="a", topic_column="target"))\n'
    )
    pipeline = spark_process._users_pipeline(str(tmp_path / "bench_users_own.py"), a_cell(tmp_path))
    (source,) = pipeline.sources
    assert (source.topics, source.pattern, source.schema, source.starting) == (("in",), None, "a int", "earliest")
    assert (pipeline.sink.topic, pipeline.sink.topic_column, pipeline.sink.key) == ("out", None, "a")
    assert pipeline.dead_letters == "out.dead-letters", "not among the user's own"
