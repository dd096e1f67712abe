"""The probe: an ordinary consumer of the output topic, which is where latency is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig, partition_counts
from tailrace.measure.schedule import Clock
from tailrace.measure.traffic.worker import Worker

OFFSET_BITS = 40
"""A source record's partition and offset make one number: the partition above this many bits of offset."""


def origin_number(partition: int, offset: int) -> int:
    """Return one number for a record's partition and offset."""
    return (partition << OFFSET_BITS) | offset


@dataclass(frozen=True)
class Arrivals:
    """Records in the order of their receipt.

    Attributes:
        numbers: The number of each record: its index in the plan, or its place in the source topic.
        sent_ns: The intended send time of each record; 0 if it has none.
        received_ns: When the probe received it.
        ready_ns: When the probe reached the end of every partition; None if it never did.
    """

    numbers: NDArray[np.int64]
    sent_ns: NDArray[np.int64]
    received_ns: NDArray[np.int64]
    ready_ns: int | None

    def within(self, first: int, end: int) -> "Arrivals":
        """Return the records whose number is in a range."""
        return self.where((self.numbers >= first) & (self.numbers < end))

    def where(self, keep: NDArray[np.bool_]) -> "Arrivals":
        """Return the records that a mask keeps."""
        return Arrivals(self.numbers[keep], self.sent_ns[keep], self.received_ns[keep], self.ready_ns)

    def firsts(self) -> "Arrivals":
        """Return the first arrival of each number, in the order of the numbers."""
        _, first = np.unique(self.numbers, return_index=True)
        return Arrivals(self.numbers[first], self.sent_ns[first], self.received_ns[first], self.ready_ns)

    @property
    def latency_ns(self) -> NDArray[np.int64]:
        """The time from intended send to receipt."""
        return self.received_ns - self.sent_ns

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True)
class ByFields:
    """Identify a result by two fields of its JSON value: its number and its intended send time."""

    number: str
    sent_ns: str


@dataclass(frozen=True)
class ByLineage:
    """Identify a result by the lineage in its headers."""


@dataclass(frozen=True)
class Snapshot:
    """The records that arrived in the last half second."""

    arrived: int
    """All records that arrived since the probe started."""
    recent: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    ready: bool
    """Whether the probe has reached the end of the topic."""


OnSnapshot = Callable[[Snapshot], None]


class Probe:
    """A running probe on a topic that nothing else has written to before."""

    def __init__(self, config: ClientConfig, topic: str, *, clock: Clock, known_by: ByFields | ByLineage) -> None:
        self._handed_over: Path | None = None
        fields = [known_by.number, known_by.sent_ns] if isinstance(known_by, ByFields) else None
        self._worker = Worker(
            "tailrace.measure.traffic.probe_worker",
            {
                "client": dict(config),
                "topic": topic,
                "partitions": partition_counts(config, [topic])[topic],
                "clock_offset_ns": clock.offset_ns,
                "fields": fields,
            },
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._worker.pid

    def watch(self, until: Callable[[Snapshot], bool], on_snapshot: OnSnapshot) -> None:
        """Call ``on_snapshot`` with every snapshot until ``until`` returns true."""
        while True:
            snapshot = self._next(5.0)
            if snapshot is not None:
                on_snapshot(snapshot)
                if until(snapshot):
                    return

    def arrivals(
        self, first: int, end: int, *, timeout_s: float, on_snapshot: OnSnapshot, settle_s: float | None = None
    ) -> Arrivals:
        """Wait at most ``timeout_s`` for the records ``first`` to ``end``; return every arrival.

        If it is not known which records come out, the wait ends after ``settle_s`` without an arrival.
        """
        self._worker.tell({"first": first, "end": end, "timeout_s": timeout_s, "settle_s": settle_s})
        deadline = time.monotonic() + timeout_s + 15
        while self._handed_over is None:
            if time.monotonic() > deadline:
                raise MeasurementFailed("the probe did not return its samples in time")
            snapshot = self._next(1.0)
            if snapshot is not None:
                on_snapshot(snapshot)
        return take_arrivals(self._handed_over)

    def _next(self, timeout_s: float) -> Snapshot | None:
        answer: dict[str, Any] | None = self._worker.answer(timeout_s)
        if answer is None:
            return None
        if "finished" in answer:
            self._handed_over = Path(answer["finished"])
            return None
        return Snapshot(**answer)

    def close(self) -> None:
        """Stop reading."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def save_arrivals(arrivals: Arrivals, file: Path) -> None:
    """Save arrivals in a file for another process."""
    np.savez(
        file,
        numbers=arrivals.numbers,
        sent_ns=arrivals.sent_ns,
        received_ns=arrivals.received_ns,
        ready_ns=np.int64(arrivals.ready_ns or 0),
    )


def take_arrivals(file: Path) -> Arrivals:
    """Load arrivals and remove the file."""
    try:
        with np.load(file) as saved:
            ready_ns = int(saved["ready_ns"]) or None
            return Arrivals(saved["numbers"], saved["sent_ns"], saved["received_ns"], ready_ns)
    finally:
        file.unlink()
