"""Queries that run: their tasks, their batches, and why they ended."""

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
    """Notes when the tasks of a query's batches start and end, from now on."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._times = tailrace_of(spark).BatchTimes(spark.sparkContext._jsc.sc(), str(query.id))
        self._times.open()

    def of(self, batch: int) -> TaskTimes | None:
        """A batch's; None where it is not known."""
        found = list(self._times.of(batch))
        return TaskTimes(*map(int, found)) if found else None

    def close(self) -> None:
        """Stop listening."""
        self._times.close()


class BatchWatch:
    """Knows which batch of a query runs, and can end the query after it."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._watch = tailrace_of(spark).BatchWatch(spark.sparkContext._jsc.sc(), query._jsq)
        self._watch.open()

    def end_after(self, completed: int) -> bool:
        """Let the query complete the batch after the given one and then end; False where that has not begun yet."""
        return bool(self._watch.endAfter(completed))

    def has_ended(self) -> bool:
        """Whether a query that was told to end has done so; it calls itself inactive before that."""
        return bool(self._watch.hasEnded())

    def close(self) -> None:
        """Watch no more."""
        self._watch.close()


def failure_text(query: StreamingQuery) -> str | None:
    """Everything Spark says about why a query ended, or None where nothing went wrong."""
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
    found = []
    for stage in _tasks(query).stages():
        total, started, done, retrying, steady_ms = map(int, stage)
        found.append(StageTasks(total, started, done, retrying, steady_ms / 1000))
    return found


def unread_partitions(query: StreamingQuery) -> tuple[str, ...]:
    """The partitions whose tasks have no slot right now, where that can be told."""
    return tuple(_tasks(query).unread())


def has_running_tasks(query: StreamingQuery) -> bool:
    """Whether a query has tasks at work right now."""
    return any(stage.started > stage.done for stage in running_stages(query))


def has_tasks_at_work(query: StreamingQuery) -> bool:
    """Whether any task of a query is at work, also one that is about to end because the query was stopped."""
    return bool(_tasks(query).atWork())


def _tasks(query: StreamingQuery) -> Any:
    return running_jvm().org.apache.spark.sql.tailrace.QueryTasks(query._jsq)


def runs_in_real_time(query: StreamingQuery) -> bool:
    """Whether the plan that is running reads its source continuously."""
    execution = query._jsq.streamingQuery().lastExecution()
    return execution is not None and "RealTimeStreamScan" in str(execution.executedPlan().toString())
