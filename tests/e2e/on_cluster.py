"""Stops and positions of queries on a cluster; `test_exact_stop_cluster.py` runs this module with the master of one."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import Kafka, wait_until
from copies import Copy
from load import Load
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from stops import Query, collect
from test_exact_stop import KEYS, counted, plain, require_exact_stops, times  # noqa: F401 - a fixture
from test_lost_records import recreate
from test_output_guard import (  # noqa: F401 - a test and its fixtures
    case,
    full,
    guards,
    test_a_guard_drops_what_exists_and_nothing_else,
)

from tailrace.engine import capacity, has_tasks_at_work
from tailrace.errors import ExecutorLost
from tailrace.kafka.topics import log_ends
from tailrace.running.ending import RepeatReason
from tailrace.running.query import RunningQuery

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
@pytest.mark.parametrize("name", ["stateless", "aggregate"])
def test_nothing_is_lost_or_repeated(
    kafka: Kafka,
    tmp_path: Path,
    times: dict[str, list[float]],  # noqa: F811
    name: str,
    mode: str,
) -> None:
    require_exact_stops(kafka, tmp_path, times, name, mode)


@pytest.mark.parametrize("mode", ["realtime", "microbatch"])
def test_a_stop_while_a_task_is_retried(spark: SparkSession, kafka: Kafka, tmp_path: Path, mode: str) -> None:
    """The retry reads as far as the attempt that failed, and repeats none of its results; nor does the next start."""
    failed = tmp_path / "failed"

    @F.udf("long")
    def fail_once(value):  # type: ignore[no-untyped-def]
        if value == 60 and not failed.exists():
            failed.touch()
            raise ValueError("the first attempt fails")
        if failed.exists():
            time.sleep(0.02)
        return value

    def transform(records: DataFrame) -> DataFrame:
        return records.withColumn("a", fail_once("a"))

    query = Query(kafka, tmp_path, transform)
    running = query.start(mode)
    kafka.send(query.source, [{"a": number} for number in range(50)])
    # On executors the workers may load the function only now.
    wait_until(lambda: len(query.written()) == 50, 60, "the first attempt writes results")
    kafka.send(query.source, [{"a": number} for number in range(50, 100)])
    wait_until(failed.exists, 60, "the first attempt fails")
    assert running.stop(60).repeats == ""
    query.require_stopped(running, mode)
    assert failed_tasks(spark, running) > 0, "the stop met a retry"
    query.finish(mode)
    assert query.written() == Counter(range(100))


@pytest.mark.parametrize("transform", [plain, counted], ids=["stateless", "aggregate"])
def test_a_stop_after_an_executor_is_lost(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, transform: Callable[[DataFrame], DataFrame]
) -> None:
    """Nobody knows how far its readers had read, so the summary says that records may be repeated.

    Spark gives tasks next to a shuffle one attempt: if it reports the executor before a failed fetch, the query fails.
    """
    query, outcome = Query(kafka, tmp_path, transform), list[Any]()
    with Load(kafka, [query.source]) as load:
        running = query.start("realtime")
        wait_until(lambda: len(query.rows()) > 500, 60, "records flow")
        executors = executors_of(spark)
        assert len(executors) == 2, "each reads one of the two partitions"
        executors[0].kill()
        wait_until(lambda: failed_tasks(spark, running) > 0, 60, "Spark retries its task")
        collect(lambda: running.stop(60), outcome)
    (ended,) = outcome
    if isinstance(ended, ExecutorLost):
        assert transform is counted
    else:
        assert ended.repeats == RepeatReason.TASK_FAILED
    query.require_stopped(running, "realtime")
    query.finish("realtime")
    if transform is counted:
        last = {row["key"]: row["count"] for row in query.rows()}
        assert last == Counter(number % KEYS for number in range(load.sent)), "the state has each record once"
    else:
        assert query.written() == Counter(range(load.sent)), "the next start leaves out what exists"


def test_a_stop_that_meets_a_lost_executor(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """The retry reads as far as the executor had reported, although its batch has been ended before it begins."""
    query, outcome = Query(kafka, tmp_path), list[Any]()
    wait_until(lambda: capacity(spark).slots == 8, 120, "two executors, although earlier tests have killed some")
    running = query.start("realtime")
    kafka.send_to_every_partition(query.source, [{"a": number} for number in range(1000)])
    kafka.receive_count(query.sink, 1000)
    wait_until(lambda: sum(each.records for each in running.positions()) == 1000, 10, "the reports of both executors")
    executor = executors_of(spark)[0]
    executor.suspend()  # it takes no request any more
    stopping = threading.Thread(target=collect, args=(lambda: running.stop(60), outcome))
    stopping.start()
    wait_until(lambda: running._ending.is_requested, 30, "the stop")
    time.sleep(1)
    executor.kill()
    stopping.join(90)
    (summary,) = outcome
    assert summary.repeats == RepeatReason.TASK_FAILED, "nobody knows whether it had read more"
    assert failed_tasks(spark, running) > 0
    query.require_stopped(running, "realtime")
    before = query.written()
    assert before == Counter(range(1000)), "the retry has written none of its results again"
    query.finish("realtime")
    assert query.written() == before, "nor has the next start"


def test_a_stop_that_saves_nothing_counts_the_records_of_a_writer(copy: Copy, kafka: Kafka) -> None:
    """Executors report twice a second, and once more when the tasks end, which is after the stop."""
    topic = kafka.topic("in")
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest"))
    with Load(kafka, [topic], per_second=1000) as load:
        running = copy.start(writer, "realtime")
        wait_until(lambda: len(copy.written()) > 500, 60, "records flow")
        summary = running.stop(0)
    wait_until(lambda: not has_tasks_at_work(running.query), 10, "its tasks end")
    assert "timeout of 0" in summary.repeats
    assert len(copy.written()) <= summary.uncommitted_rows <= load.sent


def failed_tasks(spark: SparkSession, running: RunningQuery) -> int:
    """How many attempts of the query's tasks have failed."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(running.query.runId))]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage is not None)


def executors_of(spark: SparkSession) -> list[psutil.Process]:
    """The executors of this program."""
    application = str(spark.sparkContext.applicationId)
    processes = [each for each in psutil.process_iter(["cmdline"]) if application in (each.info["cmdline"] or ())]
    return [each for each in processes if any("CoarseGrainedExecutorBackend" in word for word in each.info["cmdline"])]


def test_a_retry_that_begins_after_the_interval(kafka: Kafka, tmp_path: Path) -> None:
    """Spark lets it read nothing. The next start processes its records again, and leaves out the results that exist."""
    began, go_on, failed = (tmp_path / name for name in ("began", "go on", "failed"))
    every_s = 12

    @F.udf("long")
    def fail_late(value):  # type: ignore[no-untyped-def]
        if value == 60 and not failed.exists():
            began.touch()
            while not go_on.exists():
                time.sleep(0.01)
            failed.touch()
            raise ValueError("the first attempt fails")
        return value

    query = Query(kafka, tmp_path, lambda records: records.withColumn("a", fail_late("a")))
    running = query.start("realtime", checkpoint_every=f"{every_s}s")
    running.checkpoint()
    ends_at = time.monotonic() + every_s
    kafka.send_to_every_partition(query.source, [{"a": number} for number in range(60)])
    kafka.receive_count(query.sink, 60)
    kafka.send_to_every_partition(query.source, [{"a": number} for number in range(60, 100)])
    wait_until(began.exists, 30, "a row waits")
    wait_until(lambda: time.monotonic() > ends_at + 1, 2 * every_s, "the interval is over")
    outcome: list[Any] = []
    stopping = threading.Thread(target=collect, args=(lambda: running.stop(60), outcome))
    stopping.start()
    wait_until(lambda: running._ending.is_requested, 30, "the stop")
    go_on.touch()
    stopping.join(90)
    (summary,) = outcome
    assert summary.repeats == RepeatReason.TASK_FAILED
    assert summary.uncommitted_rows == 20, "its partition has the even ones, and those below 60 are noted"
    query.require_stopped(running, "realtime")
    query.finish("realtime")
    assert query.written() == Counter(range(100))


def test_positions_of_readers_on_executors(kafka: Kafka, tmp_path: Path) -> None:
    """Executors report twice a second. New partitions are read in the slots that are free."""
    query = Query(kafka, tmp_path)
    with query.start("realtime", tasks=8) as running:
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20)])
        kafka.receive_count(query.sink, 20)
        require_positions(kafka, query, running, partitions=2, tasks=2)
        kafka.add_partitions(query.source, 12)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20, 80)])
        began = time.monotonic()
        kafka.receive_count(query.sink, 80)
        assert time.monotonic() - began < 30
        require_positions(kafka, query, running, partitions=12, tasks=8)
        assert running.starved == running.stalled == running.slow == ""
    query.finish("realtime", tasks=8)
    assert query.written() == Counter(range(80))


def require_positions(kafka: Kafka, query: Query, running: RunningQuery, *, partitions: int, tasks: int) -> None:
    """Wait until the positions are the ends of the topic."""
    ends = log_ends(kafka.config, {query.source: partitions})[query.source]
    wait_until(lambda: {each.partition: each.offset for each in running.positions()} == ends, 10, "the positions")
    positions = running.positions()
    assert {each.task for each in positions} == set(range(tasks))
    assert {each.lag for each in positions} == {0}
    assert {each.waits_for for each in positions} == {"records"}


def test_a_topic_that_is_created_again_while_executors_read_it(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path)
    with query.start("realtime", on_data_loss="warn") as running:
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20)])
        kafka.receive_count(query.sink, 20)
        running.checkpoint()
        recreate(kafka, query.source)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(20, 80)])
        wait_until(lambda: set(query.written()) == set(range(80)), 60, "the records of the new topic")
    query.finish("realtime")
    assert set(query.written()) == set(range(80))
