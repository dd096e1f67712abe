from hypothesis import given
from hypothesis import strategies as st

from tailrace.latency.schedule import NS_PER_S, ConstantRate

STARTS = st.integers(0, 2 * 10**18)
RATES = st.floats(0.1, 1e6)


@given(start=STARTS, rate=RATES, index=st.integers(0, 10**7))
def test_count_until_a_due_time_leaves_that_record_out_and_takes_it_one_ns_later(
    start: int, rate: float, index: int
) -> None:
    plan = ConstantRate(start, rate)
    due = plan.due_ns(index)
    assert plan.count_until(due) == index
    assert plan.count_until(due + 1) == index + 1


@given(start=STARTS, rate=RATES, length_ns=st.integers(1, 1000 * NS_PER_S))
def test_count_until_is_the_number_of_records_due_before(start: int, rate: float, length_ns: int) -> None:
    plan = ConstantRate(start, rate)
    count = plan.count_until(start + length_ns)
    assert count >= 1, "the first record is due at the start itself"
    assert plan.due_ns(count - 1) < start + length_ns <= plan.due_ns(count)


@given(start=STARTS, rate=RATES, before_ns=st.integers(0, 10**12))
def test_nothing_is_due_until_the_start(start: int, rate: float, before_ns: int) -> None:
    assert ConstantRate(start, rate).count_until(start - before_ns) == 0


def test_records_are_spread_evenly_and_errors_do_not_add_up() -> None:
    plan = ConstantRate(1_000, 3.0)
    assert [plan.due_ns(index) for index in range(4)] == [1_000, 333_334_333, 666_667_667, 1_000_001_000]
    assert plan.due_ns(3_000_000) == 1_000 + 1_000_000 * NS_PER_S
