"""Open-loop load: it sends record *i* when the plan says so, whatever happens to the records before it.

Its process runs this module and records how late it sent each record.
"""

import time
from array import array
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from confluent_kafka import Producer

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig
from tailrace.measure.schedule import NS_PER_S, Clock, Shape, schedule
from tailrace.measure.traffic.records import Records, as_settings, maker
from tailrace.measure.traffic.worker import Orders, Worker

PRODUCER = {
    # A producer that batches records adds its own wait to each of them.
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "acks": "all",
    # Records that arrive during a request share the next one: no wait if the broker is idle, and far fewer requests
    # if it is busy.
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
"""At 9,000 records a second, a wake-up for each record takes 0.8 cores more in broker, load and probe than a thousand
wake-ups. On two cores the engine needs them. The wait counts as latency."""
_POLL_EVERY_NS = NS_PER_S // 20
"""The interval between checks for messages and errors, even if no record is due."""
_HEAD_START_NS = 2 * NS_PER_S
"""The process needs this long to start and to send the burst."""


@dataclass(frozen=True)
class LoadReport:
    """How well the load kept to its plan."""

    sent: int
    """All records of the plan that were sent, measured or not."""
    failed: int
    """Records that the broker did not accept, measured or not."""
    measured: int
    took_s: float
    """From the first measured record to the last, by real send time."""
    late_ms_p50: float
    late_ms_p99: float
    late_ms_max: float


@dataclass(frozen=True)
class Flow:
    """The records of a load and their times.

    Attributes:
        records: The source of the records.
        rate_per_s: The mean rate.
        shape: The load over time.
        burst: Records sent at once before the plan, numbered below zero. A JVM compiles what runs often: the burst does
            in a second what takes a minute at the rate of the plan.
        stamped: Whether headers also carry the number and intended send time.
        first_number: The number of the first record of the plan, if a topic gets several loads.
    """

    records: Records
    rate_per_s: float
    shape: Shape = Shape.CONSTANT
    burst: int = 0
    stamped: bool = False
    first_number: int = 0


class Load:
    """A running load into a topic."""

    def __init__(self, config: ClientConfig, topic: str, flow: Flow, *, clock: Clock, limit_s: float) -> None:
        """Start sending, for ``limit_s`` seconds unless :meth:`measure` says otherwise."""
        start_ns = clock.now_ns() + _HEAD_START_NS
        self.plan = schedule(flow.shape, start_ns, flow.rate_per_s)
        self._first_number = flow.first_number
        self._worker = Worker(
            "tailrace.measure.traffic.load",
            {
                "client": dict(config),
                "topic": topic,
                "shape": str(flow.shape),
                "rate_per_s": flow.rate_per_s,
                "start_ns": start_ns,
                "end_ns": start_ns + round(limit_s * NS_PER_S),
                "clock_offset_ns": clock.offset_ns,
                "records": as_settings(flow.records),
                "burst": flow.burst,
                "stamped": flow.stamped,
                "first_number": flow.first_number,
            },
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._worker.pid

    def number_until(self, end_ns: int) -> int:
        """Return the number of the first record that is not due before ``end_ns``."""
        return self._first_number + self.plan.count_until(end_ns)

    def measure(self, first_ns: int, end_ns: int) -> None:
        """Report on the records that are due from ``first_ns`` on; stop sending at ``end_ns``."""
        self._worker.send({"first_ns": first_ns, "end_ns": end_ns})

    def require_running(self) -> None:
        """Check that it still sends.

        Raises:
            MeasurementFailed: Its process ended.
        """
        self._worker.require_running()

    def report(self, timeout_s: float) -> LoadReport:
        """Wait until all records are sent and acknowledged; return the report."""
        deadline = time.monotonic() + timeout_s
        while (remaining := deadline - time.monotonic()) > 0:
            answer = self._worker.answer(remaining)
            if answer is not None:
                return LoadReport(**answer)
        raise MeasurementFailed(f"the load did not end within {timeout_s:.0f} s")

    def close(self) -> None:
        """Stop sending."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        index, now, poll_at = 0, self.clock.now_ns(), 0
        while index < self.end and not self.orders.released.is_set():
            if now >= poll_at:  # too expensive for every record
                self._obey()
                self.producer.poll(0)
                poll_at = now + _POLL_EVERY_NS
            due = self.plan.due_ns(index)
            if now < due:
                send_at = -(-due // self.every_ns) * self.every_ns
                time.sleep(min(send_at - now, _POLL_EVERY_NS) / NS_PER_S)
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
            # Times must grow with the numbers, even if this process starts slowly: an aggregate uses the latest time.
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
