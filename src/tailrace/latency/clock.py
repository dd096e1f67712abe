"""One clock for every process of a measurement.

The times in records are wall-clock nanoseconds, but the wall clock may be stepped while a measurement runs. So the
difference between the wall clock and the machine's monotonic clock is taken once, by whoever leads the measurement,
and handed to every process that takes part: all of them then read the same, steady clock.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """Wall-clock nanoseconds that never jump: a monotonic reading plus a fixed offset."""

    offset_ns: int
    monotonic_ns: Callable[[], int]

    @classmethod
    def starting_at(cls, wall_ns: int, monotonic_ns: Callable[[], int]) -> "Clock":
        """A clock that reads ``wall_ns`` now and moves with ``monotonic_ns`` from here on."""
        return cls(wall_ns - monotonic_ns(), monotonic_ns)

    def now_ns(self) -> int:
        """The time now."""
        return self.offset_ns + self.monotonic_ns()
