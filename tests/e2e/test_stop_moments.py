"""Stops at awkward moments: a clear result, no partial commit, no job left running."""

import json
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, suspended, wait_until
from load import Load
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.engine import RunControl, has_tasks_at_work
from tailrace.errors import QueryFailed, TailraceError
from tailrace.kafka.broker import Broker
from tailrace.kafka.records import read_records
from tailrace.running import start as starting
from tailrace.running.query import RunningQuery, RunSummary
from tailrace.running.saving import SavedCheckpoint

pytestmark = pytest.mark.usefixtures("spark")

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

SHORTEST = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}


class Query:
    """A pipeline from one topic to another, its checkpoint, and what it has written."""

    def __init__(self, kafka: Kafka, folder: Path, transform: Callable[[DataFrame], DataFrame] = lambda df: df) -> None:
        self.kafka = kafka
        self.source, self.sink = kafka.topic("in", 2), kafka.topic("out", 1)
        self.checkpoint = folder / "checkpoint"
        self.pipeline = tr.Pipeline(
            f"moments-{secrets.token_hex(4)}",
            tr.KafkaSource(self.source, "a long", starting="earliest"),
            transform,
            tr.KafkaSink(self.sink),
            malformed="drop",
        )

    def start(self, mode: str, **options: Any) -> RunningQuery:
        servers = self.kafka.bootstrap_servers
        return tr.start(self.pipeline, mode, bootstrap_servers=servers, checkpoint=self.checkpoint, **options)

    def finish(self, mode: str) -> RunSummary:
        servers = self.kafka.bootstrap_servers
        return tr.run(self.pipeline, mode, bootstrap_servers=servers, checkpoint=self.checkpoint, once=True)

    def written(self) -> Counter[int]:
        return Counter(json.loads(record.value)["a"] for record in read_records(self.kafka.config, self.sink))

    def logged(self, log: str) -> set[str]:
        folder = self.checkpoint / log
        return {file.name for file in folder.iterdir() if file.name.isdigit()} if folder.is_dir() else set()

    def require_stopped(self, running: RunningQuery, mode: str) -> None:
        """No task of it runs, and no batch is half saved: in real time none has offsets without a commit."""
        wait_until(lambda: not has_tasks_at_work(running.query), 10, "its tasks end")
        assert not running.is_active
        if mode == "realtime":
            assert self.logged("offsets") == self.logged("commits")


def slow(seconds: float, began: Path | None = None) -> Callable[[DataFrame], DataFrame]:
    """Return a function that takes its time for each row, and notes in a file that it has begun."""

    @F.udf("long")
    def wait(value):  # type: ignore[no-untyped-def]
        if began is not None:
            began.touch()
        time.sleep(seconds)
        return value

    return lambda df: df.withColumn("a", wait("a"))


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

    def join_slowly(records: DataFrame) -> DataFrame:
        static = slow(2.0)(records.sparkSession.range(1).select(F.col("id").alias("a")))
        return records.join(F.broadcast(static.select(F.col("a").alias("b"))), F.col("a") % 1 == F.col("b")).drop("b")

    query = Query(kafka, tmp_path, join_slowly)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(100)])
    running = query.start(mode)
    wait_until(lambda: has_tasks_at_work(running.query), 30, "the static side is being read")
    assert running.stop(60).repeats == ""
    query.require_stopped(running, mode)
    query.finish(mode)
    assert query.written() == Counter(range(100))


@pytest.mark.parametrize("mode", ["realtime"])
def test_at_a_boundary(kafka: Kafka, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended, committed = threading.Event(), RunControl.is_committed

    def note_end(control: RunControl, batch: int) -> bool:
        ended.set()  # the batch has been ended: its commit and the plan of the next batch follow
        return committed(control, batch)

    monkeypatch.setattr(RunControl, "is_committed", note_end)
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load:
        for number in range(5):
            ended.clear()
            running = query.start(mode)
            outcome: list[Any] = []
            saving = threading.Thread(target=collect, args=(running.checkpoint, outcome))
            saving.start()
            assert ended.wait(30)
            time.sleep(0.02 * number)  # commit, plan, first tasks of the next batch
            assert running.stop(60).repeats == ""
            saving.join(30)
            assert not saving.is_alive(), "a checkpoint during a stop must not hang"
            assert isinstance(outcome[0], SavedCheckpoint | QueryFailed)
            query.require_stopped(running, mode)
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


def collect(call: Callable[[], Any], outcome: list[Any]) -> None:
    try:
        outcome.append(call())
    except TailraceError as failed:
        outcome.append(failed)


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


def test_while_no_broker_answers(broker: Broker, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path)
    # A question of Spark's driver to a silent broker cannot be interrupted: by default it lasts a minute.
    impatient = {"kafka.default.api.timeout.ms": "5000", "kafka.request.timeout.ms": "4000"}
    query.pipeline = replace(query.pipeline, source=replace(query.pipeline.sources[0], options=impatient))
    with Load(kafka, [query.source]) as load:
        running = query.start(mode)
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
    with suspended(broker):
        began = time.monotonic()
        summary = running.stop(3)
        assert time.monotonic() - began < 60
    query.require_stopped(running, mode)
    query.finish(mode)
    if summary.repeats == "":
        assert query.written() == Counter(range(load.sent))
    else:
        assert summary.repeats == "its batch did not end within 3 s"
        assert set(query.written()) == set(range(load.sent)), "at least once"


def test_rows_that_a_slow_function_has_not_processed(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path, slow(0.05, tmp_path / "began"))
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(400)])  # 10 s in two tasks
    running = query.start("realtime")
    wait_until((tmp_path / "began").exists, 30, "rows are processed")
    summary = running.stop(1)
    assert summary.repeats == "its batch did not end within 1 s"
    assert summary.uncommitted_rows == 400, "all were read, and wait for the function"
    query.require_stopped(running, "realtime")
    assert query.logged("commits") == set(), "nothing is saved"
    running = query.start("realtime")
    summary = running.stop(60)
    assert summary.repeats == "", "what was read is finished, and saved"
    assert summary.uncommitted_rows == 0
    query.require_stopped(running, "realtime")
    again = query.written()
    query.finish("realtime")
    written = query.written()
    assert set(written) == set(range(400))
    assert {a: written[a] for a in again} == again, "nothing is repeated after the exact stop"


def test_in_the_middle_of_a_large_micro_batch(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path, slow(0.01))
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(1000)])  # 5 s in two tasks
    running = query.start("microbatch")
    wait_until(lambda: query.logged("offsets") == {"0"}, 30, "the batch has begun")
    summary = running.stop(0.5)
    assert summary.repeats == "its batch did not end within 0.5 s"
    assert summary.uncommitted_rows == 1000
    query.require_stopped(running, "microbatch")
    assert query.logged("commits") == set()
    running = query.start("microbatch")
    wait_until(lambda: has_tasks_at_work(running.query), 30, "the batch runs again")
    assert running.stop(60).repeats == "", "the batch is finished first"
    assert query.logged("commits") == {"0"}
    query.finish("microbatch")
    assert set(query.written()) == set(range(1000))


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


PROGRAM = """\
import sys, time
import tailrace as tr
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

@F.udf(LongType())
def wait(value):
    time.sleep({seconds})
    return value

servers, checkpoint = {servers!r}, {checkpoint!r}
pipeline = tr.Pipeline({name!r}, tr.KafkaSource({source!r}, "a long", starting="earliest"),
    lambda df: df.withColumn("a", wait("a")), tr.KafkaSink({sink!r}), malformed="drop")
with tr.start(pipeline, {mode!r}, bootstrap_servers=servers, checkpoint=checkpoint, stop_timeout="60s") as query:
    print("runs", flush=True)
    try:
        query.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(repr(query.summary().repeats), flush=True)
"""


@contextmanager
def program(query: Query, folder: Path, mode: str, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """A user's program with a query, in a Python of its own."""
    (folder / "program.py").write_text(
        PROGRAM.format(
            name=query.pipeline.name,
            seconds=seconds,
            source=query.source,
            sink=query.sink,
            mode=mode,
            servers=query.kafka.bootstrap_servers,
            checkpoint=str(query.checkpoint),
        )
    )
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n", process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_in_a_program(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    """PySpark cancels all jobs on Ctrl-C; a query of Tailrace is stopped instead."""
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load, program(query, tmp_path, mode, 0) as process:
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert out == "interrupted\n''\n", err
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


@pytest.mark.parametrize("mode", ["realtime"])
def test_sigterm_in_a_program(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    """It leaves the `with` block, which saves what was read, and ends the program."""
    query = Query(kafka, tmp_path)
    with Load(kafka, [query.source]) as load, program(query, tmp_path, mode, 0) as process:
        wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + signal.SIGTERM, err
    assert query.logged("offsets") == query.logged("commits")
    query.finish(mode)
    assert query.written() == Counter(range(load.sent))


@pytest.mark.parametrize("mode", ["realtime"])
def test_the_second_ctrl_c_stops_at_once(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(1000)])  # 50 s in two tasks
    with program(query, tmp_path, mode, 0.1) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        assert process.stdout.readline() == "interrupted\n"
        time.sleep(1)  # it waits for its rows
        assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert time.monotonic() - began < 25
    assert query.logged("offsets") == query.logged("commits") == set()
    query.pipeline = replace(query.pipeline, transform=lambda df: df)
    query.finish(mode)
    assert set(query.written()) == set(range(1000))


class TestCheckpointOnRequest:
    """`running.checkpoint()` returns when the progress is saved."""

    def test_it_saves_what_was_read(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        query = Query(kafka, tmp_path)
        with Load(kafka, [query.source]) as load:
            running = query.start(mode)
            wait_until(lambda: sum(query.written().values()) > 100, 30, "records flow")
            saved = running.checkpoint()
            assert str(saved.number) in query.logged("commits")
            assert saved.pause_ms is not None
            if mode == "realtime":
                assert 0 < saved.pause_ms < 10_000
                later = running.checkpoint()
                assert later.number == (saved.number or 0) + 1
            running.stop()
        query.finish(mode)
        assert query.written() == Counter(range(load.sent))

    @pytest.mark.parametrize("mode", ["realtime"])
    def test_a_crash_after_it_repeats_only_what_came_later(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        query = Query(kafka, tmp_path)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(50)])
        running = query.start(mode)
        kafka.receive_count(query.sink, 50)
        running.checkpoint()
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(50, 60)])
        kafka.receive_count(query.sink, 60)
        assert running.stop(0).repeats == "a stop timeout of 0 leaves no time to save"
        query.finish(mode)
        assert query.written() == Counter(range(60)) + Counter(range(50, 60))

    def test_an_idle_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        with Query(kafka, tmp_path).start(mode) as running:
            began = time.monotonic()
            saved = running.checkpoint()
            assert time.monotonic() - began < 20
            assert saved.number == (0 if mode == "realtime" else None)

    def test_two_at_once(self, kafka: Kafka, tmp_path: Path) -> None:
        with Query(kafka, tmp_path).start("realtime") as running:
            outcomes: list[Any] = []
            saves = [threading.Thread(target=collect, args=(running.checkpoint, outcomes)) for _ in range(4)]
            for save in saves:
                save.start()
            for save in saves:
                save.join(60)
            assert all(isinstance(outcome, SavedCheckpoint) for outcome in outcomes), outcomes

    def test_a_failed_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        @F.udf("long")
        def fail(value):  # type: ignore[no-untyped-def]
            raise ValueError(f"no {value}")

        query = Query(kafka, tmp_path, lambda df: df.withColumn("a", fail("a")))
        running = query.start(mode)
        kafka.send(query.source, [{"a": 1}])
        wait_until(lambda: not running.is_active, 30, "it fails")
        with pytest.raises(TailraceError, match="no 1"):
            running.checkpoint()
        running.stop()

    def test_a_stopped_query(self, kafka: Kafka, mode: str, tmp_path: Path) -> None:
        running = Query(kafka, tmp_path).start(mode)
        running.stop()
        with pytest.raises(QueryFailed, match="is not running"):
            running.checkpoint()


def test_spark_alone_and_tailrace_share_a_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five times from one to the other, in both modes: without state."""
    move(kafka, tmp_path, monkeypatch, lambda df: df, lambda written, sent: written == Counter(range(sent)))


def test_spark_alone_and_tailrace_share_state(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(df: DataFrame) -> DataFrame:
        return df.groupBy((F.col("a") % 1).alias("key")).count().select(F.col("count").alias("a"))

    # Each count is written, once: from 1 in steps of one in real time, and the last is the number of records.
    move(
        kafka, tmp_path, monkeypatch, count, lambda written, sent: max(written) == sent and set(written.values()) == {1}
    )


def move(
    kafka: Kafka,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    transform: Callable[[DataFrame], DataFrame],
    is_right: Callable[[Counter[int], int], bool],
) -> None:
    from tailrace import engine

    query, sent, reason = Query(kafka, folder, transform), 0, ""
    monkeypatch.setattr(engine, "uncontrolled", lambda _: reason)
    for number in range(10):
        stock, mode = number % 2 == 0, ("realtime", "microbatch")[number // 2 % 2]
        reason = "stock Spark, for this test" if stock else ""
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(sent, sent + 20)])
        sent += 20
        if not (stock and mode == "realtime"):
            query.finish(mode)
        else:
            running = query.start(mode, checkpoint_every="1s", conf=SHORTEST)
            wait_until(partial(idle_batches, running, 2), 60, "everything is saved")
            assert "Spark's own source" in running.stop().repeats
        assert is_right(query.written(), sent), (number, mode, stock)


def idle_batches(running: RunningQuery, wanted: int) -> bool:
    """Return whether so many batches have followed the last one with records."""
    rows = [progress.numInputRows for progress in running.query.recentProgress]
    read = [number for number, count in enumerate(rows) if count]
    return bool(read) and len(rows) - 1 - read[-1] >= wanted
