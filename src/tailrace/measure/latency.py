"""Latency arithmetic: percentiles, the percentile curve, the course over time and the HDR histogram.

Pure: it reads no clock and touches no file or network.
"""

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from tailrace.report.result import LaneResult, Timeline

NS_PER_MS = 1_000_000
MIN_SAMPLES_BEYOND = 10
"""A percentile with fewer samples above it is mostly chance, so it is None."""
CURVE = (
    *(float(percent) for percent in range(0, 50, 10)),
    *(50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0, 99.3, 99.5, 99.7, 99.8, 99.9),
    *(99.95, 99.97, 99.98, 99.99, 99.995, 99.999),
)
"""The percentiles of a curve: dense in the tail."""
_LONGEST_US = 600_000_000
_FIGURES = 3


def lane_result(latency_ns: NDArray[np.int64], *, expected: int, duplicated: int) -> LaneResult:
    """Summarise the latencies of the distinct records that arrived.

    Args:
        latency_ns: One latency per distinct measured record, in any order.
        expected: The number of measured records that were sent.
        duplicated: The number of further arrivals.
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
    """Return the smallest sample that at least ``percent`` of all samples do not exceed (nearest rank)."""
    count = len(ordered_ns)
    rank = int(np.ceil(round(count * percent / 100.0, 6)))
    if count - rank < MIN_SAMPLES_BEYOND:
        return None
    return _to_ms(ordered_ns[max(rank, 1) - 1])


def percentile_curve(latency_ns: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Return pairs of percentile and milliseconds, up to the last one with enough samples above it."""
    ordered = np.sort(latency_ns)
    points = ((percent, percentile_ms(ordered, percent)) for percent in CURVE)
    return [(percent, ms) for percent, ms in points if ms is not None]


def timeline(
    sent_ns: NDArray[np.int64], latency_ns: NDArray[np.int64], start_ns: int, seconds: float, step_s: float = 0.5
) -> Timeline:
    """Return the median, p99 and maximum of each step of the measured window, by intended send time."""
    steps = max(1, int(np.ceil(seconds / step_s)))
    step_of = ((sent_ns - start_ns) / (step_s * 1e9)).astype(np.int64)
    figures: dict[str, list[float | None]] = {"p50_ms": [], "p99_ms": [], "max_ms": []}
    counts = []
    for number in range(steps):
        here = np.sort(latency_ns[step_of == number])
        counts.append(len(here))
        for name, percent in (("p50_ms", 50.0), ("p99_ms", 99.0), ("max_ms", 100.0)):
            rank = max(int(np.ceil(len(here) * percent / 100)), 1) - 1
            figures[name].append(round(float(here[rank]) / NS_PER_MS, 3) if len(here) else None)
    return Timeline(
        step_s=step_s,
        start_s=0.0,
        p50_ms=tuple(figures["p50_ms"]),
        p99_ms=tuple(figures["p99_ms"]),
        max_ms=tuple(figures["max_ms"]),
        count=tuple(counts),
    )


def growth_ms_per_s(sent_ns: NDArray[np.int64], latency_ns: NDArray[np.int64]) -> float:
    """Return how fast latency grows over the window: the slope through the medians of its tenths.

    It is zero for a lane that keeps up. For a lane that falls behind it is the time lost per second.
    """
    if len(sent_ns) < 20:
        return 0.0
    ordered = np.argsort(sent_ns, kind="stable")
    tenths = np.array_split(ordered, 10)
    at_s = np.array([float(np.median(sent_ns[part])) / 1e9 for part in tenths])
    ms = np.array([float(np.median(latency_ns[part])) / NS_PER_MS for part in tenths])
    if np.ptp(at_s) == 0:
        return 0.0
    return round(float(np.polyfit(at_s - at_s[0], ms, 1)[0]), 4)


def hdr_histogram(latency_ns: NDArray[np.int64]) -> str:
    """Return the distribution as an HDR histogram: microseconds, three figures, encoded in its V2 log format."""
    histogram = HdrHistogram(1, _LONGEST_US, _FIGURES)
    values, counts = np.unique(np.clip(latency_ns // 1000, 1, _LONGEST_US), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    encoded: bytes = histogram.encode()
    return encoded.decode()


def _to_ms(value_ns: np.int64) -> float:
    return round(float(value_ns) / NS_PER_MS, 3)
