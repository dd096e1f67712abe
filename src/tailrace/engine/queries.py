"""Running queries: their tasks, their batches, and why they ended."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine.gateway import jvm_of, running_jvm, tailrace_of


@dataclass(frozen=True)
class TaskTimes:
    """When the tasks of a batch started and ended, in milliseconds of the wall clock."""

    submitted: int
    first_start: int
    last_start: int
    first_end: int
    last_end: int


class BatchTimes:
    """Records when the tasks of a query's batches start and end."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._times = tailrace_of(spark).BatchTimes(spark.sparkContext._jsc.sc(), str(query.id))
        self._times.open()

    def of(self, batch: int) -> TaskTimes | None:
        """Return the task times of a batch, or None if they are not known."""
        times = list(self._times.of(batch))
        return TaskTimes(*map(int, times)) if times else None

    def close(self) -> None:
        """Stop listening."""
        self._times.close()


class BatchWatch:
    """Follows the batches of a query, and can end the query after one."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._watch = tailrace_of(spark).BatchWatch(spark.sparkContext._jsc.sc(), query._jsq)
        self._watch.open()

    def end_after(self, completed: int) -> bool:
        """End the query after the batch that follows ``completed``; return False if that batch has not begun."""
        return bool(self._watch.endAfter(completed))

    def has_ended(self) -> bool:
        """Return whether the query has ended; Spark calls it inactive earlier."""
        return bool(self._watch.hasEnded())

    def close(self) -> None:
        """Stop listening to the query."""
        self._watch.close()


def failure_text(query: StreamingQuery) -> str | None:
    """Return Spark's message and stack trace of a failed query, or None if it did not fail."""
    failed = query.exception()
    if failed is None:
        return None
    cause = query._jsq.exception().get()
    trace = jvm_of(SparkSession.builder.getOrCreate()).org.apache.spark.util.Utils.exceptionString(cause)
    return f"{failed}\n{trace}"


@dataclass(frozen=True)
class StageTasks:
    """The tasks of a running stage."""

    total: int
    started: int
    """Tasks that run or have finished."""
    done: int
    retrying: int
    """Tasks whose attempts have failed so far: Spark has yet to retry them."""
    steady_s: float
    """Seconds since a task last got a slot; if no task runs, since the stage was submitted."""

    @property
    def waiting(self) -> int:
        """Tasks without a slot, those to be retried included."""
        return max(0, self.total - self.started)


def running_stages(query: StreamingQuery) -> list[StageTasks]:
    """Return the running stages of a query, the source's first, also those without any slot."""
    stages = []
    for stage in _tasks(query).stages():
        total, started, done, retrying, steady_ms = map(int, stage)
        stages.append(StageTasks(total, started, done, retrying, steady_ms / 1000))
    return stages


def unread_partitions(query: StreamingQuery) -> tuple[str, ...]:
    """Return the partitions whose tasks have no slot now, as far as Spark reports them."""
    return tuple(_tasks(query).unread())


def has_running_tasks(query: StreamingQuery) -> bool:
    """Return whether a query has running tasks."""
    return any(stage.started > stage.done for stage in running_stages(query))


def has_tasks_at_work(query: StreamingQuery) -> bool:
    """Return whether any task of a query still runs, including tasks of a stopped query."""
    return bool(_tasks(query).atWork())


def _tasks(query: StreamingQuery) -> Any:
    return running_jvm().org.apache.spark.sql.tailrace.QueryTasks(query._jsq)


def runs_in_real_time(query: StreamingQuery) -> bool:
    """Return whether the running plan reads its source continuously."""
    execution = query._jsq.streamingQuery().lastExecution()
    return execution is not None and "RealTimeStreamScan" in str(execution.executedPlan().toString())
