"""Whether everything a running real-time query should read is being read.

Spark says nothing where a task gets no slot: the partition is left unread, batch after batch. That can begin long after
the start, when a topic gains partitions or another job takes slots.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.engine import StageTasks
from tailrace.runtime.visible_records import VisibleRecords

PATIENCE_S = 5.0
"""How long tasks may wait for a slot: at a batch boundary those of the old batch still hold some."""


@dataclass(frozen=True)
class Starved:
    """What is not being read."""

    waiting: int
    """Tasks that wait for a slot."""
    partitions: tuple[str, ...]
    """The partitions that stood still although they have records, where that is known."""

    @property
    def in_words(self) -> str:
        """For a person."""
        if self.partitions:
            return f"{', '.join(self.partitions)} {'is' if len(self.partitions) == 1 else 'are'} not being read"
        return (
            f"{self.waiting} task{'s' if self.waiting != 1 else ''} cannot get a slot, so some partitions are not read"
        )


class Flow:
    """What has been seen of a query's tasks and progress."""

    def __init__(self, visible: VisibleRecords) -> None:
        self._visible = visible
        self._waiting_since: float | None = None
        self._batch: int | None = None
        self._still: dict[str, int] = {}
        self._unread: tuple[str, ...] = ()

    def look(self, stages: Sequence[StageTasks], latest: Mapping[str, Any] | None, now: float) -> Starved | None:
        """What is starved by now, if anything is.

        Args:
            stages: The stages that run.
            latest: The progress of the last batch that was completed.
            now: A monotonic time in seconds.
        """
        waiting = sum(stage.waiting for stage in stages)
        if waiting:
            self._waiting_since = now if self._waiting_since is None else self._waiting_since
        elif stages and not any(stage.done for stage in stages):
            # Between two batches there are none; at the end of one those that have waited run for a moment.
            self._waiting_since = None
        if latest is not None and latest.get("batchId") != self._batch:
            self._note_batch(latest)
        if waiting and self._waiting_since is not None and now - self._waiting_since >= PATIENCE_S:
            return Starved(waiting, tuple(sorted(self._still)))
        return Starved(0, self._unread) if self._unread else None

    def _note_batch(self, progress: Mapping[str, Any]) -> None:
        """A record that came at the very end of a batch is read in the next one: twice in a row is no accident."""
        self._batch = progress.get("batchId")
        still = still_partitions(progress)
        again = [place for place, offset in still.items() if self._still.get(place) == offset]
        self._still = still
        # The end that Spark tells counts what no consumer sees, such as the marks that end a transaction.
        ends = self._visible(again) if again else {}
        self._unread = tuple(sorted(place for place in again if still[place] < ends.get(place, 0)))


def still_partitions(progress: Mapping[str, Any]) -> dict[str, int]:
    """The partitions that a batch left where they were although there was more in them, and where that is."""
    found = {}
    for source in progress.get("sources", ()):
        start, end, latest = (_offsets(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
        for place, newest in latest.items():
            read_to = end.get(place, 0)
            if read_to < newest and (place not in end or start.get(place) == read_to):
                found[place] = read_to
    return found


def _offsets(told: Any) -> dict[str, int]:
    """Offsets by ``topic-partition``; none where the source is not Kafka."""
    if isinstance(told, str):  # as PySpark hands them over
        try:
            told = json.loads(told)
        except ValueError:
            return {}
    if not isinstance(told, Mapping) or not all(isinstance(each, Mapping) for each in told.values()):
        return {}
    return {f"{topic}-{number}": int(offset) for topic, each in told.items() for number, offset in each.items()}
