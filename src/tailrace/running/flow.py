"""Whether a running real-time query reads every partition.

Spark reports nothing when a task gets no slot: its partition stays unread in every batch. That can begin long after
the start, when another job takes slots.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tailrace.engine import ReaderPosition, StageTasks
from tailrace.running.visible_records import VisibleRecords
from tailrace.running.waits import SourcePartition

STARVED_S = 2.0
"""How long tasks may wait for a slot until their partitions are called starved."""
POLLS = 3
"""How many checks in a row must find them waiting: on a busy machine Spark's own figures are late."""
PATIENCE_S = 10.0
"""How long they may wait until the query has to end: at a batch boundary, other tasks may still hold slots."""
RECOVERY_S = 120.0
"""How long tasks may wait after a task failed: Spark may first have to replace a lost executor."""
SUBMITTED_S = 1.0
"""How long a new stage may take to start its first task."""
SETTLED_S = 0.5
"""A stage starts its tasks together. A task that has not started this long after the last one waits for a slot."""
STILL_S = 30.0
"""How long a partition with unread records may stay at the same offset."""
TASK_S = 3.0
"""A batch counts as evidence only if all its tasks ran this long; Spark's shortest batch lasts 5 s."""


@dataclass(frozen=True)
class Starved:
    """Partitions that are not read, or tasks without a slot."""

    waiting: int
    """Tasks that wait for a slot."""
    partitions: tuple[str, ...]
    """The partitions with unread records that do not advance, if known."""
    lasts: bool = True
    """Whether it has lasted so long that the query must end."""

    @property
    def in_words(self) -> str:
        """The same as a sentence."""
        if self.partitions:
            return f"{', '.join(self.partitions)} {'is' if len(self.partitions) == 1 else 'are'} not being read"
        return (
            f"{self.waiting} task{'s' if self.waiting != 1 else ''} cannot get a slot, so some partitions are not read"
        )


@dataclass(frozen=True)
class _Standstill:
    """A partition that several batches have left at the same offset."""

    offset: int
    since: float | None = None
    """When the first batch that counts as evidence ended."""
    batches: int = 0
    """The number of batches that count as evidence."""

    def again(self, now: float) -> "_Standstill":
        return _Standstill(self.offset, now if self.since is None else self.since, self.batches + 1)

    def is_long(self, now: float) -> bool:
        """Whether the partition has stood still long enough; one batch may end just after a record arrives."""
        return self.batches > 1 and self.since is not None and now - self.since >= STILL_S


class Flow:
    """The tasks and the progress of a query, as seen so far."""

    def __init__(self, visible: VisibleRecords) -> None:
        self._visible = visible
        self._waiting_since: float | None = None
        self._polls = 0
        """Consecutive checks with waiting tasks."""
        self._starved = 0
        """Tasks that have waited too long, until all have a slot."""
        self._retried_at: float | None = None
        self._batch: int | None = None
        self._ran_s = 0.0
        """How long all tasks of the batch have been running, as far as seen."""
        self._still: dict[SourcePartition, _Standstill] = {}
        self._unread: tuple[str, ...] = ()

    def update(
        self,
        stages: Sequence[StageTasks],
        latest: Mapping[str, Any] | None,
        readers: Sequence[ReaderPosition] | None,
        now: float,
    ) -> Starved | None:
        """Return what is starved now, or None.

        Args:
            stages: The running stages.
            latest: The progress of the last completed batch.
            readers: Where the readers are; None if only Spark's own progress is known.
            now: A monotonic time in seconds.
        """
        stages = _with_readers(stages, readers)
        waiting = sum(stage.waiting for stage in stages) if any(map(_lacks_slots, stages)) else 0
        self._note_tasks(stages, waiting, now)
        if readers is None:
            if latest is not None and latest.get("batchId") != self._batch:
                self._note_batch(latest, now)
            if stages and not any(stage.waiting or stage.done for stage in stages):
                self._ran_s = max(self._ran_s, min(stage.steady_s for stage in stages))
        if self._waiting_since is None:
            self._starved, self._polls = 0, 0
        elif waiting and self._polls >= POLLS and now - self._waiting_since >= STARVED_S:
            self._starved = waiting
        if self._starved and self._waiting_since is not None:
            lasts = now - self._waiting_since >= self._patience_s(now)
            return Starved(self._starved, _unread_of(readers, self._still), lasts)
        return Starved(0, self._unread) if self._unread else None

    def _note_tasks(self, stages: Sequence[StageTasks], waiting: int, now: float) -> None:
        if any(stage.retrying for stage in stages):
            self._retried_at = now
        if waiting:
            self._waiting_since = now if self._waiting_since is None else self._waiting_since
            self._polls += 1
        elif stages and not any(stage.waiting or stage.done for stage in stages):
            # Not between batches, when no stage runs, and not at the end of one, when waiting tasks run for a moment.
            self._waiting_since = None

    def _patience_s(self, now: float) -> float:
        recovers = self._retried_at is not None and now - self._retried_at < RECOVERY_S
        return RECOVERY_S if recovers else PATIENCE_S

    def _note_batch(self, progress: Mapping[str, Any], now: float) -> None:
        self._batch = progress.get("batchId")
        ran_s, self._ran_s = self._ran_s, 0.0
        still = {}
        for partition, offset in still_partitions(progress).items():
            before = self._still.get(partition)
            known = before if before is not None and before.offset == offset else _Standstill(offset)
            still[partition] = known.again(now) if ran_s >= TASK_S else known
        self._still = still
        self._unread = _names(self._with_records([partition for partition, each in still.items() if each.is_long(now)]))

    def _with_records(self, partitions: Sequence[SourcePartition]) -> list[SourcePartition]:
        """Keep the partitions with records: Spark's end offset counts transaction markers, too."""
        unread = []
        for source in sorted({partition.source for partition in partitions}):
            here = [partition for partition in partitions if partition.source == source]
            ends = self._visible(source, [partition.name for partition in here])
            unread += [partition for partition in here if self._still[partition].offset < ends.get(partition.name, 0)]
        return unread


def _lacks_slots(stage: StageTasks) -> bool:
    """Whether a task of a stage waits for a slot; a new stage needs a moment to start its tasks."""
    return bool(stage.waiting) and stage.steady_s >= (SETTLED_S if stage.started else SUBMITTED_S)


def _with_readers(stages: Sequence[StageTasks], readers: Sequence[ReaderPosition] | None) -> Sequence[StageTasks]:
    """Correct the stages by the readers: a task that reads has a slot, even if Spark's figures do not say so yet."""
    if not readers or not all(each.is_read for each in readers):
        return stages
    reading = len({(each.source, each.task) for each in readers})
    corrected = []
    for stage in stages:
        if stage.total <= reading:
            reading -= stage.total
            corrected.append(replace(stage, started=stage.total))
        else:
            corrected.append(stage)
            reading = 0
    return corrected


def _unread_of(readers: Sequence[ReaderPosition] | None, still: Mapping[SourcePartition, Any]) -> tuple[str, ...]:
    """Return the partitions that no task reads, as far as they are known."""
    if readers is None:
        return _names(still)
    return tuple(sorted({each.name for each in readers if not each.is_read}))


def _names(partitions: Sequence[SourcePartition] | Mapping[SourcePartition, Any]) -> tuple[str, ...]:
    return tuple(sorted({partition.name for partition in partitions}))


def still_partitions(progress: Mapping[str, Any]) -> dict[SourcePartition, int]:
    """Return the partitions with unread records that a batch did not read, with their offsets."""
    still = {}
    for number, source in enumerate(progress.get("sources", ())):
        start, end, latest = (_offsets(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
        for partition, newest in latest.items():
            read_to = end.get(partition, 0)
            if read_to < newest and (partition not in end or start.get(partition) == read_to):
                still[SourcePartition(number, partition)] = read_to
    return still


def _offsets(reported: Any) -> dict[str, int]:
    """Return offsets by ``topic-partition``; none if the source is not Kafka."""
    if isinstance(reported, str):  # as PySpark returns them
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
    if not isinstance(reported, Mapping) or not all(isinstance(each, Mapping) for each in reported.values()):
        return {}
    return {f"{topic}-{number}": int(offset) for topic, each in reported.items() for number, offset in each.items()}
