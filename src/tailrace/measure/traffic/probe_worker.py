"""The process that reads a topic like any consumer and records when each record arrived."""

import json
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tailrace.measure.latency import percentile_ms
from tailrace.measure.schedule import Clock
from tailrace.measure.traffic.load_worker import SENT_HEADER
from tailrace.measure.traffic.probe import Arrivals, origin_number, save_arrivals
from tailrace.measure.traffic.worker import Orders

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
    partition, offset = headers.get("tailrace.partition"), headers.get("tailrace.offset")
    if partition is not None and offset is not None:
        return origin_number(int(partition), int(offset)), int(headers.get("tailrace.event_time") or 0) * 1_000_000
    if SENT_HEADER in headers:  # a record of the load itself, if there is no engine
        return origin_number(message.partition() or 0, message.offset() or 0), int(headers[SENT_HEADER] or 0)
    return -1, 0


def main() -> None:
    """Read until the owner wants the samples."""
    _Reader(Orders()).run()


if __name__ == "__main__":
    main()
