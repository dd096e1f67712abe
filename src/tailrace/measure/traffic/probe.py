"""The probe: an ordinary consumer of the output topic, which is where latency is measured.

Its process runs this module and records when each record arrived.
"""

import json
import tempfile
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from numpy.typing import NDArray

from tailrace.errors import MeasurementFailed
from tailrace.frames.names import Header
from tailrace.kafka.topics import ClientConfig, partition_counts
from tailrace.measure.latency import percentile_ms
from tailrace.measure.schedule import Clock
from tailrace.measure.traffic.load import SENT_HEADER
from tailrace.measure.traffic.worker import Orders, Worker

CONSUMER = {
    "group.id": "tailrace-probe",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "fetch.min.bytes": 1,
    # Bounds an idle fetch only; a record ends it at once.
    "fetch.wait.max.ms": 500,
    "socket.nagle.disable": True,
    "log_level": 0,
}
_REPORT_EVERY_S = 0.5

Identify = Callable[[Message], tuple[int, int]]
"""From a record to its number and its intended send time."""
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
            "tailrace.measure.traffic.probe",
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
        self._worker.send({"first": first, "end": end, "timeout_s": timeout_s, "settle_s": settle_s})
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


class _Reader:
    """The arrivals of one lane."""

    def __init__(self, orders: Orders) -> None:
        settings = orders.settings
        self.orders = orders
        self.clock = Clock(settings["clock_offset_ns"], time.monotonic_ns)
        self.identify: Identify = _by_fields(*settings["fields"]) if settings["fields"] else _by_lineage
        self.not_caught_up = set(range(settings["partitions"]))
        self.ready_ns: int | None = None
        self.consumer = Consumer({**CONSUMER, **settings["client"]})
        self.consumer.assign([TopicPartition(settings["topic"], number, 0) for number in range(settings["partitions"])])
        self.numbers, self.sent, self.received = array("q"), array("q"), array("q")
        self.reported_until = 0
        self.wanted = False
        self.missing: set[int] = set()
        self.last_arrival = time.monotonic()
        self.settle_s: float | None = None
        self.give_up_at = float("inf")

    def run(self) -> None:
        """Read until all wanted records are there, the time is up or the owner has ended."""
        tell_at = time.monotonic() + _REPORT_EVERY_S
        while not self.orders.released.is_set():
            message = self.consumer.poll(0.05)
            if message is not None:
                self._take(message, self.clock.now_ns())
            now = time.monotonic()
            if now >= tell_at:
                tell_at = now + _REPORT_EVERY_S
                self._obey()
                self.orders.reply(self._snapshot())
            if self.wanted and self._is_enough(now):
                self._finish()
                return

    def _is_enough(self, now: float) -> bool:
        is_all_here = not self.missing if self.settle_s is None else now - self.last_arrival > self.settle_s
        return is_all_here or now > self.give_up_at

    def _take(self, message: Message, received_ns: int) -> None:
        error = message.error()
        if error is None:
            number, sent_ns = self.identify(message)
            self.numbers.append(number)
            self.sent.append(sent_ns)
            self.received.append(received_ns)
            self.missing.discard(number)
            self.last_arrival = time.monotonic()
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's name for it
            self.not_caught_up.discard(message.partition())
            if not self.not_caught_up and self.ready_ns is None:
                self.ready_ns = received_ns

    def _obey(self) -> None:
        for order in self.orders.take():
            self.wanted = True
            self.missing = set(range(order["first"], order["end"])) - set(self.numbers)
            self.last_arrival = time.monotonic()
            self.settle_s = order["settle_s"]
            self.give_up_at = time.monotonic() + order["timeout_s"]

    def _snapshot(self) -> dict[str, Any]:
        """Return the percentiles of the arrivals since the last snapshot."""
        received = np.array(self.received[self.reported_until :], dtype=np.int64)
        recent = np.sort(received - np.array(self.sent[self.reported_until :], dtype=np.int64))
        self.reported_until = len(self.numbers)
        return {
            "arrived": len(self.numbers),
            "recent": len(recent),
            "p50_ms": percentile_ms(recent, 50),
            "p95_ms": percentile_ms(recent, 95),
            "p99_ms": percentile_ms(recent, 99),
            "ready": self.ready_ns is not None,
        }

    def _finish(self) -> None:
        """Send all samples to the owner."""
        numbers, sent, received = (
            np.array(column, dtype=np.int64) for column in (self.numbers, self.sent, self.received)
        )
        # Created at the last moment and removed by the owner at once, so that a killed run leaves no file.
        with tempfile.NamedTemporaryFile(prefix="tailrace-samples-", suffix=".npz", delete=False) as file:
            pass
        save_arrivals(Arrivals(numbers, sent, received, self.ready_ns), Path(file.name))
        self.orders.reply({"finished": file.name})


def _by_fields(number: str, sent_ns: str) -> Identify:
    def identify(message: Message) -> tuple[int, int]:
        record = json.loads(message.value() or b"{}")
        return record[number], record[sent_ns]

    return identify


def _by_lineage(message: Message) -> tuple[int, int]:
    """Return the place of the source record, and its event time until the audit knows the intended send time."""
    headers = dict(message.headers() or ())
    partition, offset = headers.get(Header.PARTITION), headers.get(Header.OFFSET)
    if partition is not None and offset is not None:
        return origin_number(int(partition), int(offset)), int(headers.get(Header.EVENT_TIME) or 0) * 1_000_000
    if SENT_HEADER in headers:  # a record of the load itself, if there is no engine
        return origin_number(message.partition() or 0, message.offset() or 0), int(headers[SENT_HEADER] or 0)
    return -1, 0


def main() -> None:
    """Read until the owner wants the samples."""
    _Reader(Orders()).run()


if __name__ == "__main__":
    main()
