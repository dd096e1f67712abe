"""A silent broker, a starved partition and a slow function are told apart within seconds, and nothing else is accused.

A program beside the query takes every core it can get. ``TAILRACE_WAITS`` sets the number of runs; `make soak-watch`
uses fifty and saves how soon each state was found.
"""

import contextlib
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, suspended, wait_until
from figures import count, note
from load import Load
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import CheckpointTimeout
from tailrace.kafka.broker import Broker
from tailrace.running.query import RunningQuery

RUNS = int(os.environ.get("TAILRACE_WAITS", "2"))
SLOTS = 8
"""Of the shared session."""


@pytest.fixture(autouse=True)
def busy_machine() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    yield
    for each in burners:
        each.kill()
        each.wait()


def pipeline(kafka: Kafka, transform: Callable[[Any], Any] = lambda events: events) -> tr.Pipeline:
    return tr.Pipeline(
        f"waits-{secrets.token_hex(4)}",
        tr.KafkaSource(kafka.topic("in", 4), "a long, wait_s double", starting="earliest"),
        transform,
        tr.KafkaSink(kafka.topic("out", 1)),
        malformed="drop",
    )


def states(running: RunningQuery) -> dict[str, str]:
    sentences = {"starved": running.starved, "stalled": running.stalled, "slow": running.slow}
    return {name: words for name, words in sentences.items() if words}


def await_only(running: RunningQuery, state: str, *, since: float) -> str:
    """Wait until the query is in this state and in no other; say how long it took."""
    wait_until(lambda: states(running), 20, f"it is {state}")
    sentences = states(running)
    took_s = time.monotonic() - since
    note("watch", f"{state}, beside busy cores", took_s)
    assert [*sentences] == [state]
    assert took_s < 10  # 5 s on a machine that does little else
    return sentences[state]


def through_a_slow_function(events: Any) -> Any:
    return events.withColumn("waited_s", F.udf(lambda wait_s: time.sleep(wait_s) or wait_s, "double")("wait_s"))


@pytest.mark.parametrize("run", range(max(1, RUNS // 10)))
def test_starved_stalled_and_slow_are_distinguished(
    spark: Any, broker: Broker, kafka: Kafka, tmp_path: Path, run: int
) -> None:
    given = pipeline(kafka, through_a_slow_function)
    source, sink = given.sources[0].topic_names[0], given.sink.topic or ""
    options = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "c", "starved": "warn"}
    with tr.start(given, tasks=2, **options) as running:
        kafka.send_to_every_partition(source, [{"a": n, "wait_s": 0.0} for n in range(40)])
        kafka.receive_count(sink, 40)

        kafka.send_to_every_partition(source, [{"a": n, "wait_s": 2.0} for n in range(8)])
        assert source in await_only(running, "slow", since=time.monotonic())
        kafka.receive_count(sink, 48)
        wait_until(lambda: not states(running), 10, "it has caught up")

        with suspended(broker):
            assert await_only(running, "stalled", since=time.monotonic()) == f"{source}: no broker responds"
        wait_until(lambda: not states(running), 20, "the broker is back")

        with other_job(spark, free=SLOTS - 2):
            since = time.monotonic()
            with contextlib.suppress(CheckpointTimeout):
                running.checkpoint(timeout_s=2)  # the next batch needs slots that the job takes
            assert "not being read" in await_only(running, "starved", since=since)
        wait_until(lambda: not states(running), 30, "it has its slots again")
        kafka.send_to_every_partition(source, [{"a": n, "wait_s": 0.0} for n in range(4)])
        kafka.receive_count(sink, 52)


@contextlib.contextmanager
def other_job(spark: Any, free: int) -> Iterator[None]:
    """A job of the same Spark that takes the free slots, and every slot that becomes free, until it is cancelled."""
    group, tracker = secrets.token_hex(4), spark.sparkContext.statusTracker()

    def run() -> None:
        spark.sparkContext.setJobGroup(group, "takes all slots", interruptOnCancel=True)
        sleep = "java_method('java.lang.Thread', 'sleep', bigint(60000 + id * 0))"
        with contextlib.suppress(Exception):  # it is cancelled
            spark.range(0, SLOTS, 1, SLOTS).selectExpr(sleep).collect()

    def active() -> int:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: active() >= free, 20, "the job has the free slots")
        yield
    finally:
        spark.sparkContext.cancelJobGroup(group)
        thread.join()


@pytest.mark.timeout(120 + 60 * RUNS)
def test_a_query_that_is_well_is_accused_of_nothing(
    spark: Any, kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With records, without any, with a backlog and with batches that end; two of the four partitions stay empty."""
    for run in range(RUNS):
        kind = [*KINDS][run % len(KINDS)]
        given = pipeline(kafka, KINDS[kind])
        source = given.sources[0].topic_names[0]
        options = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / f"c{run}", "starved": "warn"}
        kafka.send_to_every_partition(source, [{"a": n} for n in range(5000)])
        tasks = 1 + run // len(KINDS) % 3
        with tr.start(given, tasks=tasks, **options) as running, watching(running) as accused:
            with Load(kafka, [source], per_second=200):
                time.sleep(2)
                running.checkpoint()
                time.sleep(1)
            running.checkpoint()
            time.sleep(2)
        assert accused == [], f"run {run}: {kind}"
        count("watch", "runs without a false alarm, beside busy cores", kind)
    warnings = [each for each in caplog.records if each.name == "tailrace" and each.levelname == "WARNING"]
    assert [each.getMessage() for each in warnings] == []


def through_python(events: Any) -> Any:
    return events.withColumn("b", F.udf(lambda a: a, "long")("a"))


def counted(events: Any) -> Any:
    return events.groupBy((F.col("a") % 5).alias("key")).count()


KINDS: Mapping[str, Callable[[Any], Any]] = {
    "a Python function before a shuffle": lambda events: counted(through_python(events)),
    "neither": lambda events: events,
    "a Python function": through_python,
    "a shuffle": counted,
}


@contextlib.contextmanager
def watching(running: RunningQuery) -> Iterator[list[dict[str, str]]]:
    """Everything that a query is said to wait for while it runs."""
    ended = threading.Event()
    accused: list[dict[str, str]] = []

    def look() -> None:
        while not ended.wait(0.1):
            if states(running):
                accused.append(states(running))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield accused
    finally:
        ended.set()
        thread.join()
