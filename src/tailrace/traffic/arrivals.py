"""What a probe saw: every record, when it was meant to be sent and when it was received."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OFFSET_BITS = 40
"""A source record's partition and offset make one number: the partition above so many bits of offset."""


def origin_number(partition: int, offset: int) -> int:
    """One number for a record's place in its topic."""
    return (partition << OFFSET_BITS) | offset


@dataclass(frozen=True)
class Arrivals:
    """Records in the order of their receipt.

    Attributes:
        numbers: The number in each record: its place in the plan, or in its source topic where it is known by that.
        sent_ns: The intended send time in each record; 0 where it has none.
        received_ns: When the probe had it.
        ready_ns: When the probe had reached the end of every partition and read what came; None if it never did.
    """

    numbers: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    received_ns: NDArray[np.int64]
    ready_ns: int | None

    def within(self, first: int, end: int) -> "Arrivals":
        """Those whose number is in a range."""
        return self.where((self.numbers >= first) & (self.numbers < end))

    def where(self, keep: NDArray[np.bool_]) -> "Arrivals":
        """Those that a mask keeps."""
        return Arrivals(self.numbers[keep], self.sent_ns[keep], self.received_ns[keep], self.ready_ns)

    def firsts(self) -> "Arrivals":
        """The first arrival of each number, in the order of the numbers."""
        _, first = np.unique(self.numbers, return_index=True)
        return Arrivals(self.numbers[first], self.sent_ns[first], self.received_ns[first], self.ready_ns)

    @property
    def latency_ns(self) -> NDArray[np.int64]:
        """From intended send to receipt."""
        return self.received_ns - self.sent_ns

    def __len__(self) -> int:
        return len(self.numbers)


def save_arrivals(arrivals: Arrivals, file: Path) -> None:
    """Hand them over in a file."""
    np.savez(
        file,
        numbers=arrivals.numbers,
        sent_ns=arrivals.sent_ns,
        received_ns=arrivals.received_ns,
        ready_ns=np.int64(arrivals.ready_ns or 0),
    )


def take_arrivals(file: Path) -> Arrivals:
    """Take them over and remove the file."""
    try:
        with np.load(file) as saved:
            ready_ns = int(saved["ready_ns"]) or None
            return Arrivals(saved["numbers"], saved["sent_ns"], saved["received_ns"], ready_ns)
    finally:
        file.unlink()
