"""A start that is interrupted or fails: no query goes on without a handle or the lock of its checkpoint."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

import tailrace as tr
from tailrace import engine
from tailrace.engine import has_tasks_at_work
from tailrace.errors import CheckpointInUse
from tailrace.prepare.prepare import Prepared
from tailrace.prepare.target import BuiltQuery
from tailrace.running import run as running_run
from tailrace.running import start as starting
from tailrace.running.ending import Ending
from tailrace.running.query import RunningQuery


@pytest.fixture
def pipeline(kafka: Kafka) -> tr.Pipeline:
    return tr.Pipeline(
        "interrupted",
        tr.KafkaSource(kafka.topic("in"), "id long"),
        lambda events: events,
        tr.KafkaSink(kafka.topic("out")),
        malformed="drop",
    )


@pytest.fixture
def begin(spark: Any, kafka: Kafka, pipeline: tr.Pipeline, mode: str, tmp_path: Path) -> Callable[[], RunningQuery]:
    return lambda: tr.start(pipeline, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path)


def test_ctrl_c_before_spark_has_returned_the_query_stops_it(
    begin: Callable[[], RunningQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[StreamingQuery] = []

    def start(built: BuiltQuery, prepared: Prepared) -> StreamingQuery:
        begun.append(original(built, prepared))
        signal.raise_signal(signal.SIGINT)  # while the call is still on its way back
        return begun[-1]

    original = starting.start_in_spark
    monkeypatch.setattr(starting, "start_in_spark", start)
    with pytest.raises(KeyboardInterrupt):
        begin()
    assert not begun[0].isActive
    monkeypatch.undo()
    begin().stop()


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_while_the_start_is_confirmed_stops_the_query(
    begin: Callable[[], RunningQuery],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    raised: type[BaseException],
) -> None:
    interrupted: list[RunningQuery] = []

    def confirm(running: RunningQuery) -> None:
        interrupted.append(running)
        signal.raise_signal(number)
        original(running)

    original = starting.confirm
    monkeypatch.setattr(starting, "confirm", confirm)
    with pytest.raises(raised):
        begin()
    assert not interrupted[0].is_active
    wait_until(lambda: not has_tasks_at_work(interrupted[0].query), 30, "its tasks end")
    monkeypatch.undo()
    begin().stop()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_right_after_the_start_of_a_run_ends_it_as_a_stop(
    spark: Any,
    kafka: Kafka,
    pipeline: tr.Pipeline,
    mode: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    started: list[RunningQuery] = []

    def start(*arguments: Any, **options: Any) -> RunningQuery:
        started.append(original(*arguments, **options))
        signal.raise_signal(number)  # while the call is still on its way back
        return started[-1]

    original = running_run.start_query
    monkeypatch.setattr(running_run, "start_query", start)
    summary = tr.run(pipeline, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path, stop_timeout="60s")
    assert summary.repeats == ""
    assert started[0].is_over


def test_a_query_that_gets_no_handle_is_stopped(
    begin: Callable[[], RunningQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = without_handle(monkeypatch)
    with pytest.raises(Py4JError, match="o42"):
        begin()
    assert not started[0].isActive
    monkeypatch.undo()
    begin().stop()


def test_a_query_without_a_handle_that_cannot_be_stopped_keeps_the_lock(
    begin: Callable[[], RunningQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_query: StreamingQuery) -> None:
        raise Py4JError("An error occurred while calling o43.stop")

    started = without_handle(monkeypatch)
    monkeypatch.setattr(StreamingQuery, "stop", stop)
    with pytest.raises(Py4JError, match="o42") as raised:
        begin()
    assert "could not be stopped" in raised.value.__notes__[0]
    assert started[0].isActive
    monkeypatch.undo()
    with pytest.raises(CheckpointInUse):
        begin()
    started[0].stop()


def without_handle(monkeypatch: pytest.MonkeyPatch) -> list[StreamingQuery]:
    """Let a query's control fail; return the queries that were started."""
    started: list[StreamingQuery] = []

    def refuse(query: StreamingQuery) -> None:
        started.append(query)
        raise Py4JError("An error occurred while calling o42.of")

    monkeypatch.setattr(engine, "RunControl", refuse)
    return started


def test_a_query_that_an_interrupted_start_cannot_stop_keeps_the_lock(
    begin: Callable[[], RunningQuery], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted: list[RunningQuery] = []

    def confirm(running: RunningQuery) -> None:
        interrupted.append(running)
        raise KeyboardInterrupt

    def stop(_query: StreamingQuery) -> None:
        raise Py4JError("An error occurred while calling o42.stop")

    monkeypatch.setattr(starting, "confirm", confirm)
    monkeypatch.setattr(Ending, "end", lambda *_: None)  # it does not end by itself either
    monkeypatch.setattr(StreamingQuery, "stop", stop)
    with pytest.raises(KeyboardInterrupt) as raised:
        begin()
    assert "could not be stopped" in raised.value.__notes__[0]
    assert interrupted[0].is_active
    monkeypatch.undo()
    with pytest.raises(CheckpointInUse):
        begin()
    interrupted[0].stop()
    begin().stop()
