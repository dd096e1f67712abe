"""When each record of an open-loop load is due, and the one clock that all processes of a measurement read.

Open loop: the plan fixes when record *i* is due, whatever happens to the records before it. Latency counts from that
time, so a stall shows in full in every record that it delays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NS_PER_S = 1_000_000_000


class Shape(StrEnum):
    """The shape of a load over time, at a given mean rate."""

    CONSTANT = "constant"
    POISSON = "poisson"
    """Exponentially distributed gaps, as of many independent senders."""
    BURST = "burst"
    """One second in ten at five times the rate of the others."""
    STEP = "step"
    """Ten seconds each at half the rate, the rate, and one and a half times the rate."""


class Schedule(Protocol):
    """A plan that gives each record its time."""

    @property
    def start_ns(self) -> int:
        """When the plan begins."""

    def due_ns(self, index: int) -> int:
        """Return the intended send time of record ``index``."""

    def count_until(self, end_ns: int) -> int:
        """Return the number of records that are due before ``end_ns``."""


def schedule(shape: Shape, start_ns: int, rate_per_s: float, seed: int = 11) -> Schedule:
    """Return the plan of a shape. The same arguments give the same plan in every process."""
    match shape:
        case Shape.CONSTANT:
            return ConstantRate(start_ns, rate_per_s)
        case Shape.POISSON:
            return PoissonRate(start_ns, rate_per_s, seed)
        case Shape.BURST:
            base = rate_per_s / 1.4
            return ChangingRate(start_ns, ((9.0, base), (1.0, 5 * base)))
        case Shape.STEP:
            return ChangingRate(start_ns, tuple((10.0, rate_per_s * factor) for factor in (0.5, 1.0, 1.5)))


@dataclass(frozen=True)
class ConstantRate:
    """Record *i* is due ``i / rate`` seconds after the start."""

    start_ns: int
    rate_per_s: float

    def due_ns(self, index: int) -> int:
        """Return the intended send time of record ``index``."""
        return self.start_ns + round(index * NS_PER_S / self.rate_per_s)

    def count_until(self, end_ns: int) -> int:
        """Return the number of records that are due before ``end_ns``."""
        estimate = int((end_ns - self.start_ns) * self.rate_per_s / NS_PER_S)
        return _count_until(self, end_ns, estimate)


@dataclass(frozen=True)
class ChangingRate:
    """A repeated cycle of parts, each with its own rate."""

    start_ns: int
    parts: Sequence[tuple[float, float]]
    """Seconds and records per second of each part."""

    def due_ns(self, index: int) -> int:
        """Return the intended send time of record ``index``."""
        counts = [seconds * rate for seconds, rate in self.parts]
        cycles, left = divmod(float(index), sum(counts))
        begins_s = cycles * sum(seconds for seconds, _ in self.parts)
        part = 0
        while part + 1 < len(counts) and left >= counts[part]:
            left -= counts[part]
            begins_s += self.parts[part][0]
            part += 1
        return self.start_ns + round((begins_s + left / self.parts[part][1]) * NS_PER_S)

    def count_until(self, end_ns: int) -> int:
        """Return the number of records that are due before ``end_ns``."""
        cycle_s = sum(seconds for seconds, _ in self.parts)
        per_cycle = sum(seconds * rate for seconds, rate in self.parts)
        cycles, left_s = divmod((end_ns - self.start_ns) / NS_PER_S, cycle_s)
        ends = list(accumulate(seconds for seconds, _ in self.parts))
        within = 0.0
        for (seconds, rate), end_s in zip(self.parts, ends, strict=True):
            within += min(max(left_s - (end_s - seconds), 0.0), seconds) * rate
        return _count_until(self, end_ns, int(cycles * per_cycle + within))


_CHUNK = 65_536


@dataclass(frozen=True)
class PoissonRate:
    """Independent arrivals: gaps follow an exponential distribution with the mean of the rate."""

    start_ns: int
    rate_per_s: float
    seed: int
    _drawn: list[NDArray[np.int64]] = field(default_factory=list, compare=False, repr=False)

    def due_ns(self, index: int) -> int:
        """Return the intended send time of record ``index``."""
        return self.start_ns + int(self._chunk(index // _CHUNK)[index % _CHUNK])

    def count_until(self, end_ns: int) -> int:
        """Return the number of records that are due before ``end_ns``."""
        count = 0
        number = 0
        while True:
            inside = int(np.searchsorted(self._chunk(number), end_ns - self.start_ns, side="left"))
            count += inside
            if inside < _CHUNK:
                return count
            number += 1

    def _chunk(self, number: int) -> NDArray[np.int64]:
        """Return the due times of one chunk of records, relative to the start."""
        while len(self._drawn) <= number:
            generator = np.random.default_rng([self.seed, len(self._drawn)])
            gaps = generator.exponential(NS_PER_S / self.rate_per_s, _CHUNK)
            before = int(self._drawn[-1][-1]) if self._drawn else 0
            self._drawn.append(before + np.cumsum(gaps).astype(np.int64))
        return self._drawn[number]


def _count_until(plan: Schedule, end_ns: int, estimate: int) -> int:
    """Correct an estimate by the due times of the records around it."""
    if end_ns <= plan.start_ns:
        return 0
    count = max(estimate, 0)
    while plan.due_ns(count) < end_ns:
        count += 1
    while count > 0 and plan.due_ns(count - 1) >= end_ns:
        count -= 1
    return count


@dataclass(frozen=True)
class Clock:
    """Wall-clock nanoseconds that never jump: a monotonic clock plus a fixed offset.

    The wall clock may be stepped during a measurement. So the process that leads it takes the offset once and sends it
    to all other processes.
    """

    offset_ns: int
    monotonic_ns: Callable[[], int]

    @classmethod
    def starting_at(cls, wall_ns: int, monotonic_ns: Callable[[], int]) -> "Clock":
        """Return a clock that reads ``wall_ns`` now and moves with ``monotonic_ns``."""
        return cls(wall_ns - monotonic_ns(), monotonic_ns)

    def now_ns(self) -> int:
        """Return the time now."""
        return self.offset_ns + self.monotonic_ns()
