import json
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.measure.latency import MIN_SAMPLES_BEYOND, lane_result, percentile_ms

PERCENTS = (50.0, 95.0, 99.0, 99.9)


def nearest_rank(samples: list[int], percent: float) -> int:
    """The definition, word by word and in exact arithmetic."""
    share = Fraction(str(percent)) / 100
    for sample in sorted(samples):
        if Fraction(sum(each <= sample for each in samples), len(samples)) >= share:
            return sample
    raise AssertionError("the largest sample always qualifies")


@given(samples=st.lists(st.integers(0, 10**12), min_size=1, max_size=120), percent=st.sampled_from(PERCENTS))
def test_a_percentile_is_the_nearest_rank(samples: list[int], percent: float) -> None:
    percentile = percentile_ms(np.sort(np.array(samples, dtype=np.int64)), percent)
    if percentile is not None:
        assert percentile == round(nearest_rank(samples, percent) / 1e6, 3)


@given(count=st.integers(0, 30_000), percent=st.sampled_from(PERCENTS))
def test_a_percentile_needs_enough_samples_above_it(count: int, percent: float) -> None:
    ordered = np.arange(1, count + 1, dtype=np.int64) * 1_000_000
    rank = -(-count * Fraction(str(percent)) // 100)
    percentile = percentile_ms(ordered, percent)
    assert percentile == (float(rank) if count - rank >= MIN_SAMPLES_BEYOND else None)


@pytest.mark.parametrize(("percent", "needed"), [(50.0, 20), (95.0, 200), (99.0, 1_000), (99.9, 10_000)])
def test_the_fewest_samples_of_each_percentile(percent: float, needed: int) -> None:
    samples = np.ones(needed, dtype=np.int64)
    assert percentile_ms(samples, percent) is not None
    assert percentile_ms(samples[1:], percent) is None


def test_lost_and_repeated_records_are_counted_in_any_order() -> None:
    latencies = [number * 1_000_000 for number in range(1, 10_001)]
    random.Random(1).shuffle(latencies)
    result = lane_result(np.array(latencies, dtype=np.int64), expected=10_003, duplicated=2)
    assert result.as_json() == {
        "p50_ms": 5_000.0,
        "p95_ms": 9_500.0,
        "p99_ms": 9_900.0,
        "p999_ms": 9_990.0,
        "max_ms": 10_000.0,
        "samples": 10_000,
        "lost": 3,
        "duplicated": 2,
    }


def test_a_lane_without_arrivals_lost_everything() -> None:
    result = lane_result(np.array([], dtype=np.int64), expected=5, duplicated=0)
    assert (result.p50_ms, result.p999_ms, result.max_ms) == (None, None, None)
    assert (result.samples, result.lost) == (0, 5)


def test_a_lane_can_be_written_as_json() -> None:
    result = lane_result(np.arange(100, dtype=np.int64), expected=100, duplicated=0)
    assert json.loads(json.dumps(result.as_json()))["samples"] == 100
