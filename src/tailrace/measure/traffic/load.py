"""Open-loop load: it sends record *i* when the plan says so, whatever happens to the records before it."""

import time
from dataclasses import dataclass
from typing import Self

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig
from tailrace.measure.schedule import NS_PER_S, Clock, Shape, schedule
from tailrace.measure.traffic.records import Records, as_settings
from tailrace.measure.traffic.worker import Worker

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
            "tailrace.measure.traffic.load_worker",
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
        self._worker.tell({"first_ns": first_ns, "end_ns": end_ns})

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
