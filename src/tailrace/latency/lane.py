"""The result of one lane: what a consumer saw of one stream of records. One shape everywhere in the project."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

NS_PER_MS = 1_000_000
MIN_SAMPLES_BEYOND = 10
"""A percentile with fewer samples beyond it than this is chance, and is not given."""


@dataclass(frozen=True)
class LaneResult:
    """Latency from intended send to receipt, in milliseconds, over every measured record.

    A percentile is None where too few samples lie beyond it to mean anything.
    """

    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    p999_ms: float | None
    max_ms: float | None
    samples: int
    """Distinct measured records that arrived."""
    lost: int
    """Measured records that were sent and never arrived."""
    duplicated: int
    """Arrivals of a measured record beyond its first."""

    def as_json(self) -> dict[str, float | int | None]:
        """The lane object of every JSON that Tailrace prints."""
        return asdict(self)


def lane_result(latency_ns: NDArray[np.int64], *, expected: int, duplicated: int) -> LaneResult:
    """Sum up the latencies of the distinct records that arrived.

    Args:
        latency_ns: One latency per distinct measured record, in any order.
        expected: How many measured records were sent.
        duplicated: How many further arrivals there were.
    """
    ordered = np.sort(latency_ns)
    count = len(ordered)
    return LaneResult(
        p50_ms=percentile_ms(ordered, 50.0),
        p95_ms=percentile_ms(ordered, 95.0),
        p99_ms=percentile_ms(ordered, 99.0),
        p999_ms=percentile_ms(ordered, 99.9),
        max_ms=_to_ms(ordered[-1]) if count else None,
        samples=count,
        lost=expected - count,
        duplicated=duplicated,
    )


def percentile_ms(ordered_ns: NDArray[np.int64], percent: float) -> float | None:
    """The smallest sample that at least ``percent`` of all samples do not exceed (nearest rank)."""
    count = len(ordered_ns)
    rank = int(np.ceil(round(count * percent / 100.0, 6)))
    if count - rank < MIN_SAMPLES_BEYOND:
        return None
    return _to_ms(ordered_ns[max(rank, 1) - 1])


def _to_ms(value_ns: np.int64) -> float:
    return round(float(value_ns) / NS_PER_MS, 3)
