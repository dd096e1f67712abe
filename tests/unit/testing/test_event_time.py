from datetime import UTC, datetime, time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing import at
from tailrace.testing.event_time import DAY


def test_at_returns_a_time_of_one_day_in_utc() -> None:
    assert at("12:00:30.250") == datetime(2026, 1, 1, 12, 0, 30, 250_000, UTC)
    assert at("12:00") == datetime(2026, 1, 1, 12, tzinfo=UTC)


@given(moment=st.times(), other=st.times())
def test_times_keep_the_order_of_the_clock(moment: time, other: time) -> None:
    assert at(moment.isoformat()) == datetime.combine(DAY, moment, UTC)
    assert (at(moment.isoformat()) < at(other.isoformat())) is (moment < other)


@pytest.mark.parametrize("text", ["", "noon", "25:00", "12:60", "2026-01-01T12:00"])
def test_an_invalid_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        at(text)
