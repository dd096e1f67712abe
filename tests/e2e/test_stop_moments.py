"""Stops at awkward moments: a clear result, no partial commit, no job left running."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, suspended, wait_until
from load import Load
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from stops import STEPS, Query, collect, held, held_between_batches

from tailrace.engine import has_tasks_at_work
from tailrace.errors import QueryFailed
from tailrace.kafka.broker import Broker
from tailrace.running import start as starting
from tailrace.running.query import RunningQuery
from tailrace.running.saving import SavedCheckpoint
from tailrace.running.summary import RunSummary

pytestmark = pytest.mark.usefixtures("spark")

LARGE = 50_000


def test_right_after_the_start(kafka: Kafka, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "confirm", lambda _running: None)  # do not wait until its tasks run
    query = Query(kafka, tmp_path)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(100)])
    for _ in range(3):
        running = query.start(mode)
        assert running.stop(60).repeats == ""
        query.require_stopped(running, mode)
    query.finish(mode)
    assert query.written() == Counter(range(100))


def test_while_a_batch_is_planned(kafka: Kafka, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "confirm", lambda _running: None)

    began, go_on = tmp_path / "began", tmp_path / "go on"

    def join(records: DataFrame) -> DataFrame:
        static = held(began, go_on)(records.sparkSession.range(1).select(F.col("id").alias("a")))
        return records.join(F.broadcast(static.select(F.col("a").alias("b"))), F.col("a") % 1 == F.col("b")).drop("b")

    query = Query(kafka, tmp_path, join)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(100)])
    running = query.start(mode)
    wait_until(began.exists, 30, "the static side is being read")
    assert stop_and_then(running, go_on.touch).repeats == ""
    query.require_stopped(running, mode)
    if mode == "realtime":
        assert query.written() == Counter(), "its tasks started after the request, and ended where they started"
    query.finish(mode)
    assert query.written() == Counter(range(100))


@pytest.mark.parametrize("step", range(len(STEPS)), ids=STEPS)
def test_at_a_boundary(kafka: Kafka, mode: str, step: int, tmp_path: Path) -> None:
    began, go_on = tmp_path / "began", tmp_path / "go on"
    query = Query(kafka, tmp_path, held(began, go_on))
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20)])
    running = query.start(mode)
    control = running._ending.control
    assert control is not None
    wait_until(began.exists, 60, "a row waits")
    outcomes: dict[str, list[Any]] = {"checkpoint": [], "stop": []}
    saving = threading.Thread(target=collect, args=(running.checkpoint, outcomes["checkpoint"]))
    saving.start()
    if mode == "realtime":
        wait_until(lambda: control.last_ended() is not None, 30, "the batch is to end")
    stopping = threading.Thread(target=collect, args=(lambda: running.stop(60), outcomes["stop"]))
    with held_between_batches(running, step, go_on.touch):
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20, 40)])
        if step:  # Spark writes it in the background
            wait_until(lambda: query.logged("commits") == {"0"}, 30, "the commit")
        assert query.logged("commits") == ({"0"} if step else set())
        stopping.start()
        wait_until(lambda: running._ending.is_requested, 30, "the stop")
    for thread in (stopping, saving):
        thread.join(60)
        assert not thread.is_alive(), "neither hangs"
    assert [summary.repeats for summary in outcomes["stop"]] == [""]
    assert isinstance(outcomes["checkpoint"][0], SavedCheckpoint | QueryFailed)
    query.require_stopped(running, mode)
    assert query.logged("commits") == {"0"}
    assert query.written() == Counter(range(20)), "the next batch has not begun"
    query.finish(mode)
    assert query.written() == Counter(range(40))


def test_twice_at_once(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load:
        running = query.start(mode)
        outcomes: list[Any] = []
        stops = [threading.Thread(target=collect, args=(running.stop, outcomes)) for _ in range(2)]
        for stop in stops:
            stop.start()
        for stop in stops:
            stop.join(30)
        assert [outcome.repeats for outcome in outcomes] == ["", ""]
        assert running.stop().repeats == ""
        query.require_stopped(running, mode)
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


@pytest.mark.parametrize("load", ["busy", "idle"])
def test_while_no_broker_responds(broker: Broker, kafka: Kafka, mode: str, load: str, tmp_path: Path) -> None:
    """A stop takes some seconds more than its timeout, although Kafka's clients wait for a minute."""
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as sending:
        running = query.start(mode)
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
        if load == "busy":
            took_s, summary = stop_without_broker(broker, running)
    if load == "idle":
        wait_until(lambda: sum(query.written().values()) == sending.sent, 60, "everything is written")
        took_s, summary = stop_without_broker(broker, running)
    assert took_s < 3 + 15, "the timeout, and what a busy machine needs"
    query.require_stopped(running, mode)
    query.finish(mode)
    if load == "idle":
        assert summary.repeats == "", "no batch ran, or it had nothing to wait for"
    if summary.repeats == "":
        assert query.written() == Counter(range(sending.sent))
    else:
        assert summary.repeats == "its batch did not end within 3 s"
        assert set(query.written()) == set(range(sending.sent)), "at least once"


def stop_without_broker(broker: Broker, running: RunningQuery) -> tuple[float, RunSummary]:
    """Stop a query while no broker responds; return how long that took, and the summary."""
    with suspended(broker):
        began = time.monotonic()
        summary = running.stop(3)
        return time.monotonic() - began, summary


def stop_and_then(running: RunningQuery, go_on: Callable[[], object]) -> RunSummary:
    """Stop a query that waits for something, let it go on when the stop has been requested, and return the summary."""
    outcome: list[Any] = []
    stopping = threading.Thread(target=collect, args=(lambda: running.stop(60), outcome))
    stopping.start()
    wait_until(lambda: running._ending.is_requested, 30, "the stop")
    go_on()
    stopping.join(90)
    (summary,) = outcome
    assert isinstance(summary, RunSummary), summary
    return summary


def test_rows_that_a_slow_function_has_not_processed(kafka: Kafka, tmp_path: Path) -> None:
    began, go_on = tmp_path / "began", tmp_path / "go on"
    query = Query(kafka, tmp_path, held(began, go_on))
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(400)])
    running = query.start("realtime")
    wait_until(began.exists, 30, "rows are processed")
    wait_until(lambda: sum(each.records for each in running.positions()) == 400, 30, "both tasks have read theirs")
    summary = running.stop(1)
    assert summary.repeats == "its batch did not end within 1 s"
    assert summary.uncommitted_rows == 400, "all were read, and wait for the function"
    query.require_stopped(running, "realtime")
    assert query.logged("commits") == set(), "nothing is saved"
    running = query.start("realtime")
    summary = stop_and_then(running, go_on.touch)
    assert summary.repeats == "", "what was read is finished, and saved"
    assert summary.uncommitted_rows == 0
    query.require_stopped(running, "realtime")
    again = query.written()
    query.finish("realtime")
    written = query.written()
    assert set(written) == set(range(400))
    assert {a: written[a] for a in again} == again, "nothing is repeated after the exact stop"


def test_in_the_middle_of_a_large_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    query = Query(kafka, tmp_path, held(tmp_path / "began", go_on))
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(LARGE)])
    running = query.start("microbatch")
    wait_until(lambda: query.logged("offsets") == {"0"}, 30, "the batch has begun")
    summary = running.stop(0.5)
    assert summary.repeats == "its batch did not end within 0.5 s"
    assert summary.uncommitted_rows == LARGE
    query.require_stopped(running, "microbatch")
    assert query.logged("commits") == set()
    running = query.start("microbatch")
    wait_until(lambda: has_tasks_at_work(running.query), 30, "the batch runs again")
    assert stop_and_then(running, go_on.touch).repeats == "", "the batch is finished first"
    assert query.logged("commits") == {"0"}
    query.finish("microbatch")
    assert set(query.written()) == set(range(LARGE))


@pytest.mark.parametrize("every", ["0ms", "60s"])
def test_an_idle_micro_batch_query_stops_at_once(kafka: Kafka, tmp_path: Path, every: str) -> None:
    query = Query(kafka, tmp_path)
    kafka.send(query.source, [{"a": 1}])
    running = query.start("microbatch", trigger_every=every)
    wait_until(lambda: query.logged("commits") == {"0"}, 30, "the first batch is saved")
    began = time.monotonic()
    assert running.stop().repeats == ""
    assert time.monotonic() - began < 8, "it does not wait for the next trigger"
    query.finish("microbatch")
    assert query.written() == Counter([1])
