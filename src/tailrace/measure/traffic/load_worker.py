"""The process that sends records when they are due, and records how late it sent each one."""

import time
from array import array
from typing import Any

import numpy as np
from confluent_kafka import Producer

from tailrace.measure.schedule import NS_PER_S, Clock, Shape, schedule
from tailrace.measure.traffic.records import maker
from tailrace.measure.traffic.worker import Orders

PRODUCER = {
    # A producer that batches records adds its own wait to each of them.
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "acks": "all",
    # Records that arrive during a request go together in the next one: no wait if the broker is idle, and far fewer
    # requests if it is busy.
    "max.in.flight.requests.per.connection": 1,
    "delivery.report.only.error": True,
    # The partitioner of Java's clients, so that every engine finds a key in the partition of its own producer.
    "partitioner": "murmur2_random",
    "queue.buffering.max.messages": 1_000_000,
    "log_level": 0,
}
SEQUENCE_HEADER = "bench.id"
SENT_HEADER = "bench.sent_ns"
_CLOSEST_NS = NS_PER_S // 2_000
"""If records are due closer together than this, the process sends all due ones once per ``_TOGETHER_NS``."""
_TOGETHER_NS = NS_PER_S // 1_000
"""At 9,000 records a second, a wake-up for each takes 0.8 of a core more, in broker, load and probe, than a thousand
wake-ups: on two cores that is what engines have left. The wait counts as latency."""
_LOOK_EVERY_NS = NS_PER_S // 20
"""The interval between looks at messages and errors, also if the next record is far away."""


class _Sender:
    """One run of the load."""

    def __init__(self, orders: Orders) -> None:
        settings = orders.settings
        self.orders = orders
        self.topic: str = settings["topic"]
        self.plan = schedule(Shape(settings["shape"]), settings["start_ns"], settings["rate_per_s"])
        self.every_ns = _TOGETHER_NS if NS_PER_S / settings["rate_per_s"] < _CLOSEST_NS else 1
        self.clock = Clock(settings["clock_offset_ns"], time.monotonic_ns)
        self.first = 0
        self.end = self.plan.count_until(settings["end_ns"])
        self.make = maker(settings["records"])
        self.stamped: bool = settings["stamped"]
        self.first_number: int = settings["first_number"]
        self.producer = Producer({**PRODUCER, **settings["client"]})
        self.failed = 0
        self.sent_ns = array("q")
        self.late_ns = array("q")

    def run(self) -> dict[str, Any]:
        """Send all records that are due; return the report."""
        self._send_burst(self.orders.settings["burst"])
        index, now, look_at = 0, self.clock.now_ns(), 0
        while index < self.end and not self.orders.released.is_set():
            if now >= look_at:  # for every record it would cost too much
                self._obey()
                self.producer.poll(0)
                look_at = now + _LOOK_EVERY_NS
            due = self.plan.due_ns(index)
            if now < due:
                send_at = -(-due // self.every_ns) * self.every_ns
                time.sleep(min(send_at - now, _LOOK_EVERY_NS) / NS_PER_S)
                now = self.clock.now_ns()
                if now < due:
                    continue
            self._produce(self.first_number + index, due)
            self.sent_ns.append(now)
            self.late_ns.append(now - due)
            index += 1
            now = self.clock.now_ns()
        undelivered = self.producer.flush(1.0 if self.orders.released.is_set() else 15.0)
        return {"sent": index, "failed": self.failed + undelivered, **self._measured()}

    def _measured(self) -> dict[str, Any]:
        """Return how late the measured records were."""
        late = np.sort(np.array(self.late_ns, dtype=np.int64)[self.first :])
        if not len(late):
            return {"measured": 0, "took_s": 0.0, "late_ms_p50": 0.0, "late_ms_p99": 0.0, "late_ms_max": 0.0}
        return {
            "measured": len(late),
            "took_s": (self.sent_ns[-1] - self.sent_ns[self.first]) / 1e9,
            "late_ms_p50": float(late[len(late) // 2]) / 1e6,
            "late_ms_p99": float(late[int(len(late) * 0.99)]) / 1e6,
            "late_ms_max": float(late[-1]) / 1e6,
        }

    def _send_burst(self, count: int) -> None:
        """Send the records before the plan at once, to warm up the engine."""
        for sequence in range(-count, 0):
            # Times must grow with the numbers, even if this process started slowly: an aggregate takes the largest.
            self._produce(sequence, min(self.clock.now_ns(), self.plan.start_ns))

    def _obey(self) -> None:
        for order in self.orders.take():
            self.first = self.plan.count_until(order["first_ns"])
            self.end = self.plan.count_until(order["end_ns"])

    def _produce(self, sequence: int, due_ns: int) -> None:
        key, value = self.make(sequence, due_ns)
        headers: Any = {SEQUENCE_HEADER: b"%d" % sequence, SENT_HEADER: b"%d" % due_ns} if self.stamped else None
        while True:
            try:
                self.producer.produce(
                    self.topic, value, key, timestamp=due_ns // 1_000_000, headers=headers, on_delivery=self._delivered
                )
            except BufferError:
                # The broker is behind: wait for room. The delay of the record shows it.
                self.producer.poll(0.01)
            else:
                return

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed += 1


def main() -> None:
    """Send until the plan or the owner ends."""
    orders = Orders()
    orders.reply(_Sender(orders).run())


if __name__ == "__main__":
    main()
