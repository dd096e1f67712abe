import hashlib
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.measure.schedule import (
    NS_PER_S,
    ChangingRate,
    ConstantRate,
    PoissonRate,
    Schedule,
    Shape,
    schedule,
)

STARTS = st.integers(0, 2 * 10**18)
RATES = st.floats(0.1, 1e6)
SHAPES = st.sampled_from(list(Shape))
POISSON_CHUNK = 65_536
DUE_TIMES = """
import hashlib
from tailrace.measure.schedule import Shape, schedule
plan = schedule(Shape.POISSON, 1_000, 1_234.5)
print(hashlib.sha256(",".join(str(plan.due_ns(index)) for index in range(70_000)).encode()).hexdigest())
"""


def due_times(plan: Schedule, count: int) -> list[int]:
    return [plan.due_ns(index) for index in range(count)]


@given(start=STARTS, rate=RATES, index=st.integers(0, 10**7))
def test_count_until_excludes_a_record_due_at_that_time(start: int, rate: float, index: int) -> None:
    plan = ConstantRate(start, rate)
    due = plan.due_ns(index)
    assert plan.count_until(due) == index
    assert plan.count_until(due + 1) == index + 1


@given(start=STARTS, rate=RATES, length_ns=st.integers(1, 1000 * NS_PER_S))
def test_count_until_counts_the_records_due_before(start: int, rate: float, length_ns: int) -> None:
    plan = ConstantRate(start, rate)
    count = plan.count_until(start + length_ns)
    assert count >= 1, "the first record is due at the start itself"
    assert plan.due_ns(count - 1) < start + length_ns <= plan.due_ns(count)


@given(shape=SHAPES, start=STARTS, rate=st.floats(0.1, 1e5), index=st.integers(0, 200_000))
@example(shape=Shape.POISSON, start=0, rate=1000.0, index=POISSON_CHUNK - 1)
@example(shape=Shape.POISSON, start=0, rate=1000.0, index=POISSON_CHUNK)
@example(shape=Shape.BURST, start=0, rate=1.4, index=14)
@example(shape=Shape.STEP, start=0, rate=3.3, index=99)
def test_every_shape_counts_its_due_records(shape: Shape, start: int, rate: float, index: int) -> None:
    plan = schedule(shape, start, rate)
    due = plan.due_ns(index)
    assert start <= due <= plan.due_ns(index + 1), "due times never decrease"
    for end_ns in (due, due + 1):
        count = plan.count_until(end_ns)
        assert count == 0 or plan.due_ns(count - 1) < end_ns
        assert plan.due_ns(count) >= end_ns
    assert plan.count_until(due) <= index < plan.count_until(due + 1)


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("rate", [0.7, 13.0, 2000.0, 77_777.7])
def test_due_times_never_decrease(shape: Shape, rate: float) -> None:
    times = due_times(schedule(shape, 5, rate), 80_000)
    assert all(one <= other for one, other in pairwise(times))
    assert times[0] >= 5


@pytest.mark.parametrize("shape", Shape)
def test_every_shape_has_the_given_mean_rate(shape: Shape) -> None:
    plan = schedule(shape, 1_000, 2000.0)
    # Thirty seconds are whole cycles of every shape; a Poisson count of 120,000 is 1 % off less than once in 1,000.
    sent = plan.count_until(1_000 + 60 * NS_PER_S)
    assert sent == pytest.approx(120_000, rel=0.01 if shape is Shape.POISSON else 1e-4)


@given(shape=SHAPES, start=STARTS, rate=RATES, before_ns=st.integers(0, 10**12))
def test_no_record_is_due_before_the_start(shape: Shape, start: int, rate: float, before_ns: int) -> None:
    assert schedule(shape, start, rate).count_until(start - before_ns) == 0


def test_a_constant_rate_has_no_drift() -> None:
    plan = ConstantRate(1_000, 3.0)
    assert [plan.due_ns(index) for index in range(4)] == [1_000, 333_334_333, 666_667_667, 1_000_001_000]
    assert plan.due_ns(3_000_000) == 1_000 + 1_000_000 * NS_PER_S


def per_second(plan: Schedule, seconds: int) -> list[int]:
    ends = [plan.count_until(plan.start_ns + second * NS_PER_S) for second in range(seconds + 1)]
    return [after - before for before, after in pairwise(ends)]


def test_a_burst_is_one_second_in_ten_at_five_times_the_rate_of_the_others() -> None:
    counts = per_second(schedule(Shape.BURST, 0, 1400.0), 20)
    assert counts == [*[1000] * 9, 5000] * 2


def test_steps_are_ten_seconds_each() -> None:
    counts = per_second(schedule(Shape.STEP, 0, 1000.0), 60)
    assert counts == [*[500] * 10, *[1000] * 10, *[1500] * 10] * 2


@given(
    parts=st.lists(st.tuples(st.floats(0.1, 20), st.floats(0.5, 5000)), min_size=1, max_size=4),
    seconds=st.floats(0.001, 100),
)
def test_a_changing_rate_counts_its_due_records(parts: list[tuple[float, float]], seconds: float) -> None:
    plan = ChangingRate(7, tuple(parts))
    end_ns = 7 + round(seconds * NS_PER_S)
    count = plan.count_until(end_ns)
    assert plan.due_ns(count) >= end_ns
    assert count == 0 or plan.due_ns(count - 1) < end_ns


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(due_times(PoissonRate(0, 1000.0, 11), 200_000)) / 1e6
    assert np.mean(gaps) == pytest.approx(1.0, rel=0.01)
    assert np.std(gaps) == pytest.approx(1.0, rel=0.02), "the standard deviation of an exponential is its mean"
    assert np.mean(gaps > 1.0) == pytest.approx(np.exp(-1), abs=0.01)
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 0.02, "a gap says nothing about the next"


def test_chunks_of_a_poisson_plan_differ_from_each_other() -> None:
    gaps = np.diff(due_times(PoissonRate(0, 1000.0, 11), 2 * POISSON_CHUNK))
    assert not np.array_equal(gaps[:100], gaps[POISSON_CHUNK : POISSON_CHUNK + 100])


def test_a_poisson_plan_does_not_depend_on_earlier_calls() -> None:
    one, other = PoissonRate(9, 500.0, 3), PoissonRate(9, 500.0, 3)
    far = one.due_ns(3 * POISSON_CHUNK)
    assert other.due_ns(5) == one.due_ns(5)
    assert other.count_until(far) == one.count_until(far) == 3 * POISSON_CHUNK
    assert one == other
    assert PoissonRate(9, 500.0, 4).due_ns(5) != one.due_ns(5)


def test_a_poisson_plan_is_the_same_in_every_process() -> None:
    plan = schedule(Shape.POISSON, 1_000, 1_234.5)
    here = hashlib.sha256(",".join(map(str, due_times(plan, 70_000))).encode()).hexdigest()
    there = subprocess.run([sys.executable, "-c", DUE_TIMES], capture_output=True, text=True, timeout=60, check=True)
    assert there.stdout.strip() == here
