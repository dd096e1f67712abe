import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tailrace.measure.latency import (
    CURVE,
    MIN_SAMPLES_BEYOND,
    growth_ms_per_s,
    hdr_histogram,
    percentile_curve,
    timeline,
)
from tailrace.report.result import Timeline

Nanoseconds = NDArray[np.int64]
MS = 1_000_000
S = 1_000_000_000
START = 1_763_200_000 * S
LATENCIES = hnp.arrays(np.int64, st.integers(0, 400), elements=st.integers(1, 500 * S))


def ms(*values: float) -> Nanoseconds:
    return np.array([round(value * MS) for value in values], dtype=np.int64)


@given(latency_ns=LATENCIES)
def test_a_percentile_curve_rises_until_samples_are_too_few(latency_ns: Nanoseconds) -> None:
    curve = percentile_curve(latency_ns)
    percents, values = [percent for percent, _ in curve], [value for _, value in curve]
    assert percents == sorted(set(percents))
    assert values == sorted(values)
    assert percents == list(CURVE[: len(percents)]), "no hole before its end"
    count = len(latency_ns)
    assert all(count - count * percent / 100 >= MIN_SAMPLES_BEYOND - 1e-6 for percent in percents)


def test_a_percentile_curve_matches_the_percentiles() -> None:
    curve = dict(percentile_curve(ms(*range(10_000, 0, -1))))
    assert (curve[50.0], curve[99.0], curve[99.9]) == (5_000.0, 9_900.0, 9_990.0)
    assert curve[0.0] == 1.0
    assert 99.95 not in curve, "only five samples lie beyond"


def test_no_samples_have_no_curve() -> None:
    assert percentile_curve(ms()) == []
    assert percentile_curve(ms(*range(MIN_SAMPLES_BEYOND - 1))) == []


def test_a_timeline_groups_samples_by_intended_send_time() -> None:
    sent = START + ms(0, 499.999999, 500, 999, 2_000, 2_499)
    shown = timeline(sent, ms(1, 3, 10, 20, 7, 5), START, 3.0)
    assert shown == Timeline(
        step_s=0.5,
        start_s=0.0,
        p50_ms=(1.0, 10.0, None, None, 5.0, None),
        p99_ms=(3.0, 20.0, None, None, 7.0, None),
        max_ms=(3.0, 20.0, None, None, 7.0, None),
        count=(2, 2, 0, 0, 2, 0),
    )


@given(
    offsets=st.lists(st.integers(0, 10 * S - 1), max_size=200),
    step_s=st.sampled_from([0.1, 0.25, 0.5, 1.0, 3.0]),
)
def test_a_timeline_counts_every_sample_of_the_window_once(offsets: list[int], step_s: float) -> None:
    sent = START + np.array(offsets, dtype=np.int64)
    shown = timeline(sent, np.ones(len(sent), dtype=np.int64) * MS, START, 10.0, step_s)
    assert sum(shown.count) == len(offsets)
    assert len(shown.count) == len(shown.p50_ms) == len(shown.max_ms) == int(np.ceil(10.0 / step_s))
    for number, (count, p50) in enumerate(zip(shown.count, shown.p50_ms, strict=True)):
        inside = [at for at in offsets if at // round(step_s * S) == number]
        assert count == len(inside)
        assert (p50 is None) == (not inside)


def test_a_stall_shows_only_in_the_steps_it_delayed() -> None:
    sent = START + ms(*range(10_000))
    latency = np.full(10_000, MS, dtype=np.int64)
    latency[4_000:4_500] = 300 * MS
    shown = timeline(sent, latency, START, 10.0)
    assert [number for number, greatest in enumerate(shown.max_ms) if greatest == 300.0] == [8]


def test_a_lane_that_keeps_up_has_no_growth() -> None:
    sent = START + ms(*range(20_000))
    generator = np.random.default_rng(1)
    assert abs(growth_ms_per_s(sent, (generator.exponential(5, 20_000) * MS).astype(np.int64))) < 0.05


@pytest.mark.parametrize("slope", [0.5, 30.0, -4.0])
def test_growth_is_in_milliseconds_per_second(slope: float) -> None:
    at_s = np.arange(0, 20, 0.001)
    latency = ((200 + slope * at_s) * MS).astype(np.int64)
    order = np.random.default_rng(2).permutation(len(at_s))
    assert growth_ms_per_s((START + at_s * S).astype(np.int64)[order], latency[order]) == pytest.approx(slope, rel=1e-3)


def test_one_stall_is_no_growth() -> None:
    latency = np.full(10_000, MS, dtype=np.int64)
    latency[9_600:] = 2_000 * MS
    assert growth_ms_per_s(START + ms(*range(10_000)), latency) == 0.0


def test_too_few_samples_have_no_growth() -> None:
    assert growth_ms_per_s(START + ms(*range(19)), ms(*range(19))) == 0.0
    assert growth_ms_per_s(np.full(50, START, dtype=np.int64), ms(*range(50))) == 0.0


@settings(max_examples=20)
@given(latency_ns=hnp.arrays(np.int64, st.integers(1, 200), elements=st.integers(1_000, 500 * S)))
def test_a_histogram_round_trips_with_three_figures(latency_ns: Nanoseconds) -> None:
    decoded = HdrHistogram.decode(hdr_histogram(latency_ns))
    assert decoded.get_total_count() == len(latency_ns)
    recorded = decoded.get_recorded_iterator()
    values = [at.value_iterated_to for at in recorded for _ in range(at.count_at_value_iterated_to)]
    assert values == pytest.approx(np.sort(latency_ns // 1000).tolist(), rel=1e-3)


def test_a_histogram_clips_values_to_its_range() -> None:
    decoded = HdrHistogram.decode(hdr_histogram(np.array([-5 * MS, 0, 999, 3_600 * S], dtype=np.int64)))
    assert decoded.get_total_count() == 4
    assert decoded.get_min_value() == 1
    assert decoded.get_max_value() == pytest.approx(600_000_000, rel=1e-3)


def test_a_histogram_without_samples_is_empty() -> None:
    assert HdrHistogram.decode(hdr_histogram(ms())).get_total_count() == 0
