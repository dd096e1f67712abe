"""The process that sends records when they are due, and notes how late each one was handed over."""

import time
from typing import Any

import numpy as np
from confluent_kafka import Producer

from tailrace.latency.clock import Clock
from tailrace.latency.schedule import ConstantRate
from tailrace.traffic.payments import payment_maker
from tailrace.traffic.worker import Orders

PRODUCER = {
    # Every record is sent at once: a producer that gathers records adds its own wait to each of them.
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "acks": "all",
    # Records that come while a request is under way go together in the next one: no wait where there is none, and
    # far fewer requests where the broker is busy.
    "max.in.flight.requests.per.connection": 1,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 0,
}
_POLL_EVERY = 100
"""Only errors are reported back, so there is seldom anything to collect."""
_LONGEST_NAP_S = 0.05
"""Orders are looked at this often, also where the next record is far away."""


class _Sender:
    """One run of the load."""

    def __init__(self, orders: Orders) -> None:
        settings = orders.settings
        self.orders = orders
        self.topic: str = settings["topic"]
        self.plan = ConstantRate(settings["start_ns"], settings["rate_per_s"])
        self.clock = Clock(settings["clock_offset_ns"], time.monotonic_ns)
        self.end = self.plan.count_until(settings["end_ns"])
        self.make = payment_maker()
        self.producer = Producer({**PRODUCER, **settings["client"]})
        self.failed = 0
        self.late_ns: list[int] = []

    def run(self) -> dict[str, Any]:
        """Send everything that is due; return what there is to know about it."""
        self._send_burst(self.orders.settings["burst"])
        index = 0
        while index < self.end and not self.orders.released.is_set():
            self._obey()
            due = self.plan.due_ns(index)
            wait_ns = due - self.clock.now_ns()
            if wait_ns > 0:
                time.sleep(min(wait_ns / 1e9, _LONGEST_NAP_S))
                continue
            key, value = self.make(index, due)
            self._produce(key, value)
            self.late_ns.append(-wait_ns)
            index += 1
            if index % _POLL_EVERY == 0:
                self.producer.poll(0)
        undelivered = self.producer.flush(1.0 if self.orders.released.is_set() else 15.0)
        late = np.sort(np.array(self.late_ns, dtype=np.int64))
        return {
            "sent": index,
            "failed": self.failed + undelivered,
            "late_ms_p99": float(late[int(len(late) * 0.99)]) / 1e6 if len(late) else 0.0,
            "late_ms_max": float(late[-1]) / 1e6 if len(late) else 0.0,
        }

    def _send_burst(self, count: int) -> None:
        """Records before the plan's first, all at once and numbered below zero: they warm up what they pass."""
        for sequence in range(-count, 0):
            self._produce(*self.make(sequence, self.clock.now_ns()))

    def _obey(self) -> None:
        for order in self.orders.take():
            self.end = self.plan.count_until(order["end_ns"])

    def _produce(self, key: bytes, value: bytes) -> None:
        while True:
            try:
                self.producer.produce(self.topic, value, key, on_delivery=self._delivered)
            except BufferError:
                # The broker is behind: wait for room. The record's lateness then tells.
                self.producer.poll(0.01)
            else:
                return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed += 1


def main() -> None:
    """Send until the plan's end or the owner's."""
    orders = Orders()
    orders.reply(_Sender(orders).run())


if __name__ == "__main__":
    main()
