"""When each record of an open-loop load is due.

Open loop: record *i* is due at a time that the plan fixes, whatever became of the records before it. Latency is
counted from that time, so a stall shows in full in every record that it delayed.
"""

from dataclasses import dataclass

NS_PER_S = 1_000_000_000


@dataclass(frozen=True)
class ConstantRate:
    """Record *i* is due ``i / rate`` seconds after the start."""

    start_ns: int
    rate_per_s: float

    def due_ns(self, index: int) -> int:
        """The intended send time of record ``index``."""
        return self.start_ns + round(index * NS_PER_S / self.rate_per_s)

    def count_until(self, end_ns: int) -> int:
        """How many records are due before ``end_ns``."""
        if end_ns <= self.start_ns:
            return 0
        count = int((end_ns - self.start_ns) * self.rate_per_s / NS_PER_S)
        while self.due_ns(count) < end_ns:
            count += 1
        while count > 0 and self.due_ns(count - 1) >= end_ns:
            count -= 1
        return count
