"""Running queries: their tasks, their batches, and why they ended."""

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
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


@dataclass(frozen=True)
class ReaderPosition:
    """Where the reader of a partition is.

    Attributes:
        source: The number of the source in the query.
        topic: The topic.
        partition: The number of the partition.
        task: The number of its task in the stage.
        offset: The offset of the next record that it reads.
        safe: The results and dead letters of all records before this offset are acknowledged.
        end: The end of the partition a moment ago, as far as the source may read; None if it is not known.
        records: The number of records that it has read in this batch.
        bytes: Their size.
        last_record_ms: The timestamp of the last of them; 0 if there is none.
        is_read: Whether a task of the running batch reads the partition.
        waits_for: ``records``, or ``downstream`` while the query processes rows that it has received; empty if neither
            is known.
        waited_ms: How long it has waited.
        unanswered_ms: How long the question for the ends of the topics has waited for an answer; 0 if none waits.
    """

    source: int
    topic: str
    partition: int
    task: int
    offset: int
    safe: int
    end: int | None
    records: int
    bytes: int
    last_record_ms: int
    is_read: bool
    waits_for: str
    waited_ms: int
    unanswered_ms: int

    @property
    def name(self) -> str:
        """The name of the partition, like ``topic-0``."""
        return f"{self.topic}-{self.partition}"


class RunControl:
    """Ends the batches of a query on request, and the query between two batches."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._control = _kafka().RunControl.of(query._jsq)

    def stop(self) -> None:
        """End the query after its running batch: in real time that batch ends now, in micro-batch it is finished."""
        self._control.stop()

    def has_ended(self) -> bool:
        """Return whether the query has ended; Spark reports it as inactive before its last commit."""
        return bool(self._control.hasEnded())

    def is_idle(self) -> bool:
        """Return whether the query waits for its next trigger, so that stopping it interrupts no batch."""
        return bool(self._control.isIdle())

    def has_short_retries(self) -> bool:
        """Return whether a retry stopped before the failed attempt's position: its records may be read again."""
        return bool(self._control.hasShortRetries())

    def is_saved(self) -> bool:
        """Return whether the last batch of an ended query is in the checkpoint, and none was cancelled after it."""
        return bool(self._control.isSaved())

    def unsaved_records(self) -> int:
        """Return how many of the records that it has read the next start reads again."""
        return int(self._control.unsavedRecords())

    def allow_tasks(self, more: int) -> None:
        """Allow more tasks per source in the next batch, for new partitions."""
        self._control.allowTasks(more)

    def positions(self) -> list[ReaderPosition]:
        """Return where its readers are; those on executors report twice a second."""
        return [ReaderPosition(**each) for each in json.loads(str(self._control.positions()))]

    def notices(self) -> list[dict[str, Any]]:
        """Return, once, what a user should know of its topics: ``kind``, and what :class:`Loss` has."""
        return list(json.loads(str(self._control.notices())))

    def new_partitions(self) -> list[str]:
        """Return the partitions of its topics that the running batch does not read, as names like ``topic-0``."""
        return [str(partition) for partition in self._control.newPartitions()]

    def end_batch(self) -> None:
        """End the running batch, or else the next one."""
        self._control.endBatch()

    def last_ended(self) -> int | None:
        """Return the last batch that was ended on request; None while the request waits for the next batch."""
        batch = int(self._control.lastEnded())
        return batch if batch >= 0 else None

    def is_committed(self, batch: int) -> bool:
        """Return whether a batch is in the checkpoint."""
        return bool(self._control.isCommitted(batch))

    def latest_logged(self) -> tuple[int | None, int | None]:
        """Return the latest batch whose offsets, and the latest whose commit are in the checkpoint."""
        offsets, commit = (int(batch) for batch in self._control.latestLogged())
        return (offsets if offsets >= 0 else None, commit if commit >= 0 else None)

    def pause_ms(self, batch: int) -> float | None:
        """Return how long no record was read after a batch; None until all tasks of the next batch read."""
        pause = float(self._control.pauseMs(batch))
        return pause if pause >= 0 else None

    def close(self) -> None:
        """Forget a query that has ended."""
        _kafka().RunControl.close(self._query._jsq)


def control_sources(frame: DataFrame, *, bounded: bool, tasks: int | None = None) -> DataFrame:
    """Return the same rows, read from Kafka by streams whose batches can end on request.

    Args:
        frame: The rows of a query.
        bounded: Whether the query ends, in real time, when it has read what is in the topics at its start.
        tasks: The most tasks that read each source in real time; None for one task per partition.
    """
    control = jvm_of(frame.sparkSession).org.apache.spark.sql.kafka010.tailrace.SourceControl
    return DataFrame(control.control(frame._jdf, bounded, tasks or 0), frame.sparkSession)


def allow_operators(frame: DataFrame) -> None:
    """Let a query run in real time with operators that Tailrace adds to Spark's allowlist, if it has any."""
    tailrace_of(frame.sparkSession).RealTimeOperators.allow(frame._jdf)


def with_data_loss(frame: DataFrame, *, fails: bool) -> DataFrame:
    """Return the same rows, whose Kafka sources fail or continue if records are gone."""
    control = jvm_of(frame.sparkSession).org.apache.spark.sql.kafka010.tailrace.SourceControl
    return DataFrame(control.failOnDataLoss(frame._jdf, str(fails).lower()), frame.sparkSession)


def uncontrolled(frame: DataFrame, *, realtime: bool) -> str:
    """Return why the batches of a query cannot end on request; empty if they can."""
    control = jvm_of(frame.sparkSession).org.apache.spark.sql.kafka010.tailrace.SourceControl
    return str(control.uncontrolled(frame._jdf, realtime))


def _kafka() -> Any:
    """Return the engine's Scala package for Kafka."""
    return running_jvm().org.apache.spark.sql.kafka010.tailrace


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
