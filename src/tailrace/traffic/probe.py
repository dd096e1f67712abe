"""The probe: an ordinary consumer of the output topic, which is where latency is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig, partition_counts
from tailrace.latency.clock import Clock
from tailrace.traffic.arrivals import Arrivals, take_arrivals
from tailrace.traffic.worker import Worker


@dataclass(frozen=True)
class ByFields:
    """Output records are known by two fields of their JSON value: their number and their intended send time."""

    number: str
    sent_ns: str


@dataclass(frozen=True)
class ByLineage:
    """Output records are known by the headers that say which source record they came from."""


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
    """Whether the probe has caught up with the topic and reads what comes."""


OnSnapshot = Callable[[Snapshot], None]


class Probe:
    """A running probe on a topic that nothing else has written to before."""

    def __init__(self, config: ClientConfig, topic: str, *, clock: Clock, known_by: ByFields | ByLineage) -> None:
        self._handed_over: Path | None = None
        fields = [known_by.number, known_by.sent_ns] if isinstance(known_by, ByFields) else None
        self._worker = Worker(
            "tailrace.traffic.probe_worker",
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
        """The process that reads."""
        return self._worker.pid

    def watch(self, until: Callable[[Snapshot], bool], on_snapshot: OnSnapshot) -> None:
        """Follow what arrives until ``until`` says that it is enough."""
        while True:
            snapshot = self._next(5.0)
            if snapshot is not None:
                on_snapshot(snapshot)
                if until(snapshot):
                    return

    def arrivals(
        self, first: int, end: int, *, timeout_s: float, on_snapshot: OnSnapshot, settle_s: float | None = None
    ) -> Arrivals:
        """Everything that arrived, after waiting at most ``timeout_s`` for the records ``first`` to ``end``.

        Where it is not known which records come out, the wait ends when nothing came for ``settle_s``.
        """
        self._worker.tell({"first": first, "end": end, "timeout_s": timeout_s, "settle_s": settle_s})
        deadline = time.monotonic() + timeout_s + 15
        while self._handed_over is None:
            if time.monotonic() > deadline:
                raise MeasurementFailed("the probe did not hand over its samples in time")
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
