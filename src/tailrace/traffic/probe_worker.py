"""The process that reads a topic as any consumer would and notes when each record arrived."""

import json
import tempfile
import time
from array import array
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition

from tailrace.latency.clock import Clock
from tailrace.latency.lane import percentile_ms
from tailrace.traffic.worker import Orders

CONSUMER = {
    "group.id": "tailrace-probe",
    "enable.auto.commit": False,
    "fetch.min.bytes": 1,
    # Only bounds how long an idle fetch stays open; a record ends it at once.
    "fetch.wait.max.ms": 500,
    "socket.nagle.disable": True,
    "log_level": 0,
}
_TELL_EVERY_S = 0.5


class _Reader:
    """One lane's arrivals."""

    def __init__(self, orders: Orders) -> None:
        settings = orders.settings
        self.orders = orders
        self.clock = Clock(settings["clock_offset_ns"], time.monotonic_ns)
        self.sequence_field: str = settings["sequence_field"]
        self.sent_field: str = settings["sent_field"]
        self.consumer = Consumer({**CONSUMER, **settings["client"]})
        self.consumer.assign([TopicPartition(settings["topic"], number, 0) for number in range(settings["partitions"])])
        self.sequences, self.latencies = array("q"), array("q")
        self.told_until = 0
        self.wanted: tuple[int, int] | None = None
        self.missing: set[int] = set()
        self.give_up_at = float("inf")

    def run(self) -> None:
        """Read until the wanted records are all there, or time is up, or the owner is gone."""
        tell_at = time.monotonic() + _TELL_EVERY_S
        while not self.orders.released.is_set():
            message = self.consumer.poll(0.05)
            if message is not None and message.error() is None:
                self._note(message, self.clock.now_ns())
            now = time.monotonic()
            if now >= tell_at:
                tell_at = now + _TELL_EVERY_S
                self._obey()
                self.orders.reply(self._snapshot())
            if self.wanted is not None and (not self.missing or now > self.give_up_at):
                self._finish()
                return

    def _note(self, message: Message, received_ns: int) -> None:
        record = json.loads(message.value() or b"{}")
        sequence = record[self.sequence_field]
        self.sequences.append(sequence)
        self.latencies.append(received_ns - record[self.sent_field])
        self.missing.discard(sequence)

    def _obey(self) -> None:
        for order in self.orders.take():
            first, end = order["first"], order["end"]
            self.wanted = (first, end)
            self.missing = set(range(first, end)) - set(self.sequences)
            self.give_up_at = time.monotonic() + order["timeout_s"]

    def _snapshot(self) -> dict[str, Any]:
        """The percentiles of what arrived since the last one."""
        recent = np.sort(np.array(self.latencies[self.told_until :], dtype=np.int64))
        self.told_until = len(self.latencies)
        return {
            "arrived": len(self.latencies),
            "recent": len(recent),
            "p50_ms": percentile_ms(recent, 50),
            "p95_ms": percentile_ms(recent, 95),
            "p99_ms": percentile_ms(recent, 99),
        }

    def _finish(self) -> None:
        """Hand over every wanted sample."""
        first, end = self.wanted or (0, 0)
        sequences = np.array(self.sequences, dtype=np.int64)
        latencies = np.array(self.latencies, dtype=np.int64)
        inside = (sequences >= first) & (sequences < end)
        # Made at the last moment and removed by the owner as soon as it is read: a killed run leaves no file behind.
        with tempfile.NamedTemporaryFile(prefix="tailrace-samples-", suffix=".npz", delete=False) as file:
            np.savez(file, sequences=sequences[inside], latencies=latencies[inside])
        self.orders.reply({"finished": file.name})


def main() -> None:
    """Read until told to hand over."""
    _Reader(Orders()).run()


if __name__ == "__main__":
    main()
