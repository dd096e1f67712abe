import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DurationInvalid
from tailrace.prepare.duration import REALTIME_MINIMUM_MS, in_words, parse_duration_ms, require_realtime_interval


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0ms", 0),
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1.5s", 1_500),
        ("0.25 h", 900_000),
        ("  5 Minutes ", 300_000),
        ("1 minute", 60_000),
        ("2 min", 120_000),
        ("3 secs", 3_000),
        ("1 second", 1_000),
        ("7 milliseconds", 7),
        ("2 hours", 7_200_000),
    ],
)
def test_common_forms_of_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text, "x") == milliseconds


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5s", "5 fortnights", "5m30s", "five minutes", "1e3s", "5 d", "s5", "."]
)
def test_other_forms_are_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(DurationInvalid) as refused:
        parse_duration_ms(text, "--checkpoint-every")
    assert repr(text) in refused.value.what
    assert "--checkpoint-every" in refused.value.what
    assert "5m" in refused.value.fix


@given(milliseconds=st.integers(0, 10**12))
def test_words_and_milliseconds_are_the_same_duration(milliseconds: int) -> None:
    assert parse_duration_ms(in_words(milliseconds), "x") == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(0, "0ms"), (90_000, "90s"), (60_000, "1m"), (3_600_000, "1h"), (1_001, "1001ms")]
)
def test_words_use_the_largest_unit_that_fits(milliseconds: int, words: str) -> None:
    assert in_words(milliseconds) == words


def test_real_time_accepts_five_seconds_or_more() -> None:
    require_realtime_interval(REALTIME_MINIMUM_MS)
    with pytest.raises(DurationInvalid) as refused:
        require_realtime_interval(REALTIME_MINIMUM_MS - 1)
    assert "4999ms" in refused.value.what
    assert "--checkpoint-every 5s" in refused.value.fix
