"""When faults happen: at random, right after a restart, around checkpoint boundaries."""

import random
from enum import StrEnum
from pathlib import Path

AFTER_RESTART_S = 2.0
"""The longest time between a restart and the next fault."""
_AROUND_S = 0.2
"""The longest time between a boundary and a fault before or after it."""


class Phase(StrEnum):
    """Where in a checkpoint boundary a fault happens."""

    BEFORE = "before"
    """Shortly before the batch ends."""
    BETWEEN = "between"
    """When the offsets are written and the commit is not."""
    AFTER = "after"
    """Shortly after the commit."""


PHASES = tuple(Phase)


def random_moments(count: int, seconds: float, draw: random.Random) -> list[float]:
    """Return seconds since the start of a load, one random moment in each of ``count`` equal parts of it."""
    part = seconds / max(count, 1)
    return [(number + draw.random()) * part for number in range(count)]


class BoundaryWatch:
    """Watches a checkpoint for the next boundary and says when to inject a fault.

    Args:
        checkpoint: The checkpoint folder.
        phase: Where in the boundary.
        interval_s: The checkpoint interval, to know when the next boundary is due; 0 in micro-batch.
        draw: Draws the distance from the boundary.
    """

    def __init__(self, checkpoint: Path, phase: Phase, interval_s: float, draw: random.Random) -> None:
        self._checkpoint = checkpoint
        self._phase = phase
        self._interval_s = interval_s
        self._distance_s = draw.uniform(0, _AROUND_S)
        self._committed = self._last("commits")
        self._logged = self._last("offsets")
        self._boundary_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Return whether to inject the fault now, on any clock that runs evenly."""
        if self._phase is Phase.BETWEEN:
            before, self._logged = self._logged, self._last("offsets")
            # If the commit is written already, the next boundary counts.
            return self._logged > before and self._logged > self._last("commits")
        committed = self._last("commits")
        if committed > self._committed:
            self._committed, self._boundary_at = committed, now
        if self._boundary_at is None:
            return False
        if self._phase is Phase.AFTER or self._interval_s <= self._distance_s:
            return now >= self._boundary_at + self._distance_s
        return now >= self._boundary_at + self._interval_s - self._distance_s

    def _last(self, log: str) -> int:
        folder = self._checkpoint / log
        try:
            numbers = [int(file.name) for file in folder.iterdir() if file.name.isdigit()]
        except OSError:
            return -1
        return max(numbers, default=-1)
