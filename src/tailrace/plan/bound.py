"""The end of a bounded run in real time, which Spark itself knows only for micro-batches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.kafka.topics import Offsets


@dataclass(frozen=True)
class Bound:
    """Where the sources' topics ended when the run began."""

    ends: Sequence[Offsets]
    alone: bool = False
    """Whether nobody writes to them meanwhile: then the batch after the last one has nothing in it."""

    def is_reached(self, progress: Mapping[str, Any]) -> bool:
        """Whether a completed batch lies at or past the end of every partition."""
        return _covers(_positions(progress), self.ends)


def _positions(progress: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """How far a completed batch got; of two sources that read the same topic, the one that is behind."""
    positions: dict[tuple[str, int], int] = {}
    for source in progress.get("sources", ()):
        offsets = source["endOffset"]
        if isinstance(offsets, str):
            offsets = json.loads(offsets)
        for topic, partitions in (offsets or {}).items():
            for partition, offset in partitions.items():
                place = (topic, int(partition))
                positions[place] = min(offset, positions.get(place, offset))
    return positions


def _covers(positions: Mapping[tuple[str, int], int], ends: Sequence[Offsets]) -> bool:
    return all(
        positions.get((topic, partition), 0) >= end
        for offsets in ends
        for topic, partitions in offsets.items()
        for partition, end in partitions.items()
    )
