"""The probe: an ordinary consumer of the output topic, which is where latency is measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from tailrace.errors import MeasurementFailed
from tailrace.kafka.topics import ClientConfig, partition_counts
from tailrace.latency.clock import Clock
from tailrace.latency.lane import LaneResult, lane_result
from tailrace.traffic.payments import SENT_FIELD, SEQUENCE_FIELD
from tailrace.traffic.worker import Worker


@dataclass(frozen=True)
class Snapshot:
    """The records that arrived in the last half second."""

    arrived: int
    """All records that arrived since the probe started."""
    recent: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class Probe:
    """A running probe on a topic that nothing else has written to before."""

    def __init__(self, config: ClientConfig, topic: str, *, clock: Clock) -> None:
        self._samples: Path | None = None
        self._worker = Worker(
            "tailrace.traffic.probe_worker",
            {
                "client": dict(config),
                "topic": topic,
                "partitions": partition_counts(config, [topic])[topic],
                "clock_offset_ns": clock.offset_ns,
                "sequence_field": SEQUENCE_FIELD,
                "sent_field": SENT_FIELD,
            },
        )

    def watch(self, until: Callable[[Snapshot], bool], on_snapshot: Callable[[Snapshot], None]) -> None:
        """Follow what arrives until ``until`` says that it is enough."""
        while True:
            snapshot = self._next(5.0)
            if snapshot is not None:
                on_snapshot(snapshot)
                if until(snapshot):
                    return

    def result(self, first: int, end: int, *, timeout_s: float, on_snapshot: Callable[[Snapshot], None]) -> LaneResult:
        """Sum up the records ``first`` to ``end``, waiting at most ``timeout_s`` for those still on their way."""
        self._worker.tell({"first": first, "end": end, "timeout_s": timeout_s})
        deadline = time.monotonic() + timeout_s + 15
        while self._samples is None:
            if time.monotonic() > deadline:
                raise MeasurementFailed("the probe did not hand over its samples in time")
            snapshot = self._next(1.0)
            if snapshot is not None:
                on_snapshot(snapshot)
        try:
            with np.load(self._samples) as samples:
                sequences, latencies = samples["sequences"], samples["latencies"]
        finally:
            self._samples.unlink()
        _, first_arrivals = np.unique(sequences, return_index=True)
        return lane_result(
            latencies[first_arrivals],
            expected=end - first,
            duplicated=len(sequences) - len(first_arrivals),
        )

    def _next(self, timeout_s: float) -> Snapshot | None:
        answer: dict[str, Any] | None = self._worker.answer(timeout_s)
        if answer is None:
            return None
        if "finished" in answer:
            self._samples = Path(answer["finished"])
            return None
        return Snapshot(**answer)

    def close(self) -> None:
        """Stop reading."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
