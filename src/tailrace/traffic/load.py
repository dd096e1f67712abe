"""Open-loop load: record *i* is sent when the plan says so, whatever became of the ones before it."""

import time
from dataclasses import dataclass
from typing import Self

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig
from tailrace.latency.clock import Clock
from tailrace.latency.schedule import NS_PER_S, ConstantRate
from tailrace.traffic.worker import Worker

_HEAD_START_NS = 2 * NS_PER_S
"""The process needs this long to be ready for its first record, a burst before it included."""


@dataclass(frozen=True)
class LoadReport:
    """How well the load kept to its plan."""

    sent: int
    failed: int
    late_ms_p99: float
    late_ms_max: float


class Load:
    """A running load of payments into a topic."""

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        *,
        rate_per_s: float,
        clock: Clock,
        limit_s: float,
        burst: int = 0,
    ) -> None:
        """Start sending, for ``limit_s`` seconds unless :meth:`end_at` says otherwise.

        ``burst`` records, numbered below zero and not part of the plan, are sent at once before it begins: a JVM
        compiles what runs often, so they do in a second what the plan's rate would need a minute for.
        """
        self.plan = ConstantRate(clock.now_ns() + _HEAD_START_NS, rate_per_s)
        self._worker = Worker(
            "tailrace.traffic.load_worker",
            {
                "client": dict(config),
                "topic": topic,
                "rate_per_s": rate_per_s,
                "start_ns": self.plan.start_ns,
                "end_ns": self.plan.start_ns + round(limit_s * NS_PER_S),
                "clock_offset_ns": clock.offset_ns,
                "burst": burst,
            },
        )

    def end_at(self, end_ns: int) -> None:
        """Send what is due before ``end_ns`` and no more."""
        self._worker.tell({"end_ns": end_ns})

    def report(self, timeout_s: float) -> LoadReport:
        """Wait until everything is sent and acknowledged."""
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
