"""A whole distribution of latencies: its percentile curve, its course over time, and its HDR histogram."""

from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from tailrace.latency.lane import NS_PER_MS, percentile_ms

CURVE = (
    *(float(percent) for percent in range(0, 50, 10)),
    *(50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.0, 98.0, 99.0, 99.3, 99.5, 99.7, 99.8, 99.9),
    *(99.95, 99.97, 99.98, 99.99, 99.995, 99.999),
)
"""The percentiles of a curve: dense where the tail is."""
_LONGEST_US = 600_000_000
_FIGURES = 3


def percentile_curve(latency_ns: NDArray[np.int64]) -> list[tuple[float, float]]:
    """Percentile and milliseconds, as far as there are samples enough beyond."""
    ordered = np.sort(latency_ns)
    points = ((percent, percentile_ms(ordered, percent)) for percent in CURVE)
    return [(percent, ms) for percent, ms in points if ms is not None]


def timeline(
    sent_ns: NDArray[np.int64], latency_ns: NDArray[np.int64], start_ns: int, seconds: float, step_s: float = 0.5
) -> dict[str, Any]:
    """Latency over the measured window, by intended send time: each step's median, 99th percentile and maximum."""
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
    return {"step_s": step_s, "start_s": 0.0, **figures, "count": counts}


def growth_ms_per_s(sent_ns: NDArray[np.int64], latency_ns: NDArray[np.int64]) -> float:
    """How fast latency grows over the window: the slope through the medians of its tenths.

    A lane that keeps up has none; one that falls behind grows by the time it loses.
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
    """The distribution as an HDR histogram in microseconds with three figures, encoded as its V2 log format."""
    histogram = HdrHistogram(1, _LONGEST_US, _FIGURES)
    values, counts = np.unique(np.clip(latency_ns // 1000, 1, _LONGEST_US), return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        histogram.record_value(value, count)
    encoded: bytes = histogram.encode()
    return encoded.decode()
