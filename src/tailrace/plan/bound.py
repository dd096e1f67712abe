"""The end of a bounded run in real time. Spark itself has one only for micro-batches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.kafka.topics import Offsets


@dataclass(frozen=True)
class Bound:
    """The ends of the sources' topics when the run began."""

    ends: Sequence[Offsets]
    alone: bool = False
    """Whether nobody else writes to them: the batch after the last one is then empty."""

    def is_reached(self, progress: Mapping[str, Any]) -> bool:
        """Return whether a completed batch has reached the end of every partition."""
        return _covers(_positions(progress), self.ends)


def _positions(progress: Mapping[str, Any]) -> dict[tuple[str, int], int]:
    """Return the offsets after a completed batch; if two sources read one topic, the lower ones."""
    positions: dict[tuple[str, int], int] = {}
    for source in progress.get("sources", ()):
        offsets = source["endOffset"]
        if isinstance(offsets, str):
            offsets = json.loads(offsets)
        for topic, partitions in (offsets or {}).items():
            for partition, offset in partitions.items():
                key = (topic, int(partition))
                positions[key] = min(offset, positions.get(key, offset))
    return positions


def _covers(positions: Mapping[tuple[str, int], int], ends: Sequence[Offsets]) -> bool:
    return all(
        positions.get((topic, partition), 0) >= end
        for offsets in ends
        for topic, partitions in offsets.items()
        for partition, end in partitions.items()
    )
