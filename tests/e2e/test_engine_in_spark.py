"""Parts of the engine, tested without starting a query."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from conftest import wait_until
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from python_kinds import doubling

from tailrace import engine
from tailrace.worker import pickled_worker

pytestmark = pytest.mark.timeout(300)

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


def with_engine(spark: SparkSession, timeout_ms: int = 60_000) -> SparkSession:
    """Return a session whose batches run Python functions as real time does."""
    own = engine.clone_session(spark)
    engine.install_python(own, "parts", pickled_worker(), timeout_ms=timeout_ms, dead_letters=None, always=True)
    return own


class TestTaskAttempts:
    @pytest.fixture
    def listener(self, spark: SparkSession) -> Iterator[tuple[Any, Any]]:
        """Return a status store and the listener that fills it."""
        jvm: Any = spark._jvm
        store = jvm.org.apache.spark.status.AppStatusStore.createLiveStore(
            jvm.org.apache.spark.SparkConf(), jvm.scala.Option.empty()
        )
        yield store, store.listener().get()
        store.close()

    def task(self, spark: SparkSession, number: int, index: int, launched_ms: int) -> Any:
        jvm: Any = spark._jvm
        locality = jvm.org.apache.spark.scheduler.TaskLocality.ANY()
        info = jvm.org.apache.spark.scheduler.TaskInfo
        return info(number, index, 0, index, launched_ms, "1", "host", locality, False)

    def submit(self, spark: SparkSession, listener: Any, tasks: int) -> None:
        jvm: Any = spark._jvm
        nothing = jvm.org.apache.spark.api.python.PythonUtils.toSeq([])
        none = jvm.scala.Option.empty()
        metrics = jvm.org.apache.spark.executor.TaskMetrics.empty()
        stage = jvm.org.apache.spark.scheduler.StageInfo(
            7, 0, "s", tasks, nothing, nothing, "", metrics, nothing, none, 0, False, 0
        )
        submitted = jvm.org.apache.spark.scheduler.SparkListenerStageSubmitted(stage, jvm.java.util.Properties())
        listener.onStageSubmitted(submitted)

    def start(self, spark: SparkSession, listener: Any, task: Any) -> None:
        jvm: Any = spark._jvm
        listener.onTaskStart(jvm.org.apache.spark.scheduler.SparkListenerTaskStart(7, 0, task))

    def lose(self, spark: SparkSession, listener: Any, task: Any) -> None:
        jvm: Any = spark._jvm
        task.markFinished(jvm.org.apache.spark.TaskState.FAILED(), task.launchTime() + 1)
        lost = jvm.org.apache.spark.ExecutorLostFailure("1", True, jvm.scala.Option.empty())
        metrics = jvm.org.apache.spark.executor.TaskMetrics.empty()
        peaks = jvm.org.apache.spark.executor.ExecutorMetrics()
        end = jvm.org.apache.spark.scheduler.SparkListenerTaskEnd
        listener.onTaskEnd(end(7, 0, "ResultTask", lost, task, peaks, metrics))

    def test_retries_do_not_hide_the_tasks_that_run(self, spark: SparkSession, listener: tuple[Any, Any]) -> None:
        store, events = listener
        jvm: Any = spark._jvm
        self.submit(spark, events, 4)
        tasks = [self.task(spark, index, index, 1_000) for index in range(4)]
        for each in tasks:
            self.start(spark, events, each)
        for each in tasks[2:]:
            self.lose(spark, events, each)
        attempts = jvm.org.apache.spark.sql.tailrace.TaskAttempts
        lost = attempts.of(store, 7, 0)
        assert (lost.started().size(), lost.failed().size()) == (2, 2)
        for index in (2, 3):
            self.start(spark, events, self.task(spark, 10 + index, index, 5_000))
        again = attempts.of(store, 7, 0)
        assert (again.started().size(), again.failed().size()) == (4, 0)
        assert again.steadyMs(jvm.scala.Option.empty(), 7_500) == 2_500


def test_the_listener_for_batch_times_is_removed(spark: SparkSession) -> None:
    listeners = spark.sparkContext._jsc.sc().listenerBus().listeners
    before = listeners().size()
    query: Any = SimpleNamespace(id="a-query")
    times = engine.BatchTimes(query)
    assert listeners().size() == before + 1
    times.close()
    assert listeners().size() == before


def test_a_check_of_the_time_limit_that_fails_is_repeated(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    runnable = jvm.java.lang.Class.forName("java.lang.Runnable")
    repeat = jvm.org.apache.spark.sql.execution.python.tailrace.WorkerSupervisor.repeat
    tasks, ticks = jvm.java.util.concurrent.ConcurrentLinkedDeque(), jvm.java.util.concurrent.ConcurrentLinkedDeque()
    ticks.addAll(["tick"] * 1000)
    # On an empty deque removeFirst raises an exception.
    watches = [repeat(20, jvm.java.beans.EventHandler.create(runnable, each, "removeFirst")) for each in (tasks, ticks)]
    try:
        wait_until(lambda: ticks.size() < 998, 20, "runs that fail")  # by the same thread, each in turn
        tasks.add("task")
        wait_until(tasks.isEmpty, 20, "a run after those that failed")
    finally:
        for watch in watches:
            watch.cancel(False)


class TestFetchedRecords:
    """In which order a task passes on the records of its partitions."""

    @pytest.fixture
    def fetched(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        return jvm.org.apache.spark.sql.kafka010.tailrace.FetchedRecords(3)

    def add(self, spark: SparkSession, fetched: Any, lists: dict[int, range]) -> None:
        """Let a poll return records with these offsets."""
        jvm: Any = spark._jvm
        record = jvm.org.apache.kafka.clients.consumer.ConsumerRecord
        for partition, offsets in lists.items():
            records = jvm.java.util.ArrayList()
            for offset in offsets:
                records.add(record("t", partition, offset, None, b"value"))
            fetched.add(partition, records)
        fetched.order()

    def take(self, fetched: Any, count: int) -> list[tuple[int, int]]:
        """Return the partitions and offsets of the next records."""
        records = [fetched.next() for _ in range(count)]
        return [(each.partition(), each.offset()) for each in records]

    def test_the_records_of_a_backlog_come_last(self, spark: SparkSession, fetched: Any) -> None:
        self.add(spark, fetched, {0: range(5), 1: range(1), 2: range(2)})
        assert self.take(fetched, 8) == [(1, 0), (2, 0), (2, 1), *((0, n) for n in range(5))]
        assert fetched.isEmpty()

    def test_new_records_of_others_overtake_a_backlog_and_no_record_of_their_own(
        self, spark: SparkSession, fetched: Any
    ) -> None:
        self.add(spark, fetched, {0: range(4), 1: range(2)})
        assert self.take(fetched, 3) == [(1, 0), (1, 1), (0, 0)]
        self.add(spark, fetched, {0: range(4, 6), 1: range(2, 3), 2: range(1)})
        assert self.take(fetched, 2) == [(1, 2), (2, 0)]
        assert not fetched.isEmpty(0)
        assert self.take(fetched, 5) == [(0, n) for n in range(1, 6)]
        assert fetched.isEmpty(0)
        assert fetched.isEmpty()

    def test_records_that_are_dropped_leave_those_of_others(self, spark: SparkSession, fetched: Any) -> None:
        self.add(spark, fetched, {0: range(3), 1: range(4)})
        assert self.take(fetched, 1) == [(0, 0)]
        fetched.drop(0)
        assert self.take(fetched, 4) == [(1, n) for n in range(4)]
        assert fetched.isEmpty()

    def test_a_partition_has_enough_if_it_lasts_for_the_longest_fetch(self, spark: SparkSession, fetched: Any) -> None:
        self.add(spark, fetched, {0: range(100)})
        millisecond = 1_000_000
        assert not fetched.hasEnough(1, 1000 * millisecond), "it has none"
        assert not fetched.hasEnough(0, millisecond)
        assert fetched.hasEnough(0, 2 * millisecond)
        self.add(spark, fetched, {1: range(1)})
        assert fetched.hasEnough(0, millisecond), "two partitions take turns"


class TestOffsetsThatAreGone:
    """What the driver makes of offsets that brokers have refused to readers."""

    BASE = 10_000_000_000
    """Offsets that py4j passes as a long."""

    @pytest.fixture
    def gone(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        return jvm.org.apache.spark.sql.kafka010.tailrace.GoneOffsets()

    def partition(self, spark: SparkSession) -> Any:
        jvm: Any = spark._jvm
        return jvm.org.apache.kafka.common.TopicPartition("t", 0)

    def report(self, spark: SparkSession, gone: Any, position: int, divergent: int | None = None) -> None:
        jvm: Any = spark._jvm
        option = jvm.scala.Option.apply(divergent)
        offset = jvm.org.apache.spark.sql.kafka010.tailrace.GoneOffset(self.partition(spark), position, option)
        gone.report(jvm.org.apache.spark.api.python.PythonUtils.toSeq([offset]))

    def start(self, spark: SparkSession, offset: int) -> Any:
        jvm: Any = spark._jvm
        offsets = jvm.java.util.HashMap()
        offsets.put(self.partition(spark), offset)
        return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(offsets)

    def divergent(self, spark: SparkSession, gone: Any, start: int) -> Any:
        found = gone.divergent(self.start(spark, start))
        return found.apply(self.partition(spark)) if found.size() else None

    def test_a_partition_continues_where_its_records_differ(self, spark: SparkSession, gone: Any) -> None:
        self.report(spark, gone, self.BASE + 30, self.BASE + 20)
        self.report(spark, gone, self.BASE + 30, self.BASE + 20)
        assert self.divergent(spark, gone, self.BASE + 30) == self.BASE + 20
        assert self.divergent(spark, gone, self.BASE + 25) == self.BASE + 20
        assert self.divergent(spark, gone, self.BASE + 20) is None, "the query has read none of them"
        gone.planned(self.start(spark, self.BASE + 20))
        assert self.divergent(spark, gone, self.BASE + 30) is None, "a batch later it is another position"

    def test_an_offset_that_is_refused_again_and_again_ends_the_query(self, spark: SparkSession, gone: Any) -> None:
        for _ in range(9):
            self.report(spark, gone, self.BASE)
            gone.planned(self.start(spark, self.BASE))
        self.report(spark, gone, self.BASE)
        with pytest.raises(Exception, match=f"TAILRACE_RECORDS_LOST refused in t-0: {self.BASE}"):
            gone.planned(self.start(spark, self.BASE))

    def test_refusals_of_different_offsets_or_with_batches_between_them_do_not(
        self, spark: SparkSession, gone: Any
    ) -> None:
        for n in range(30):
            if n % 8 != 7:
                self.report(spark, gone, self.BASE)
            gone.planned(self.start(spark, self.BASE))
        for n in range(30):
            self.report(spark, gone, self.BASE + n)
            gone.planned(self.start(spark, self.BASE + n))


def test_a_worker_that_ignores_sigterm_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    def stubborn(value: int) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (tmp_path / str(os.getpid())).touch()
        time.sleep(300)
        return value

    rows = with_engine(spark, timeout_ms=1000).range(1).select(F.col("id").alias("a"))
    try:
        with pytest.raises(Exception, match="took longer than"):
            doubling("udf", stubborn)(rows).collect()
        workers = [int(mark.name) for mark in tmp_path.iterdir()]
        assert workers
        wait_until(lambda: not any(map(is_running, workers)), 10, "the end of the worker")
    finally:
        for mark in tmp_path.iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(mark.name), signal.SIGKILL)


def test_idle_workers_that_died_with_their_daemon_are_replaced(spark: SparkSession) -> None:
    own = with_engine(spark)

    def doubled() -> list[int]:
        rows = own.range(0, 4, 1, 4).select(F.col("id").alias("a"))
        return [row["b"] for row in doubling("udf", lambda value: value * 2)(rows).collect()]

    assert doubled() == [0, 2, 4, 6]
    killed = python_daemons()
    assert any(each.children() for each in killed), "some workers are idle"
    with_workers = [process for daemon in killed for process in (daemon, *daemon.children(recursive=True))]
    for process in with_workers:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: not any(is_running(process.pid) for process in with_workers), 20, "the end of the daemon")
    assert doubled() == [0, 2, 4, 6]


def python_daemons() -> list[psutil.Process]:
    """Return the daemons that fork the workers of this process's Spark."""
    below = [each for each in psutil.Process().children(recursive=True) if is_running(each.pid)]
    daemons = {each.pid: each for each in below if "pyspark.daemon" in command_of(each)}
    return [each for each in daemons.values() if each.ppid() not in daemons]


def command_of(process: psutil.Process) -> list[str]:
    """Return a process's command line; nothing if it has ended, reaped or not."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
