import math
from typing import Any

import pytest

from tailrace.report import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.00"),
        (0.7134, "0.71"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (None, figures.NOTHING),
        (math.nan, figures.NOTHING),
        (math.inf, figures.NOTHING),
        (True, figures.NOTHING),
        ("12", figures.NOTHING),
    ],
)
def test_numbers_have_three_significant_figures(value: Any, text: str) -> None:
    assert figures.three_figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "0.25 s"), (9.4, "9.4 s"), (60, "60 s"), (120, "120 s"), (300, "5 min"), (512.3, "8 min 32 s"),
     (3600, "1 h"), (3661, "1 h 1 min"), (None, figures.NOTHING)],
)  # fmt: skip
def test_durations_have_readable_units(value: Any, text: str) -> None:
    assert figures.seconds(value) == text


def test_times_are_in_utc() -> None:
    assert figures.moment("2026-11-15T16:20:00Z") == "15 November 2026, 16:20 UTC"
    assert figures.moment("2026-11-15T16:20:00+02:00") == "15 November 2026, 14:20 UTC"
    assert figures.moment("some day") == "some day"
    assert figures.moment(None) == ""


def test_rates_are_shown_as_given() -> None:
    assert figures.rate(2000) == "2,000/s"
    assert figures.rate(0.5) == "0.5/s"


def test_nested_settings_are_flattened() -> None:
    assert figures.flat({"a": {"b": 1, "c": {"d": True}}, "e": "x", "f": None, "g": {}, "h": [1, 2]}) == {
        "a · b": "1",
        "a · c · d": "true",
        "e": "x",
        "f": "null",
        "g": "{}",
        "h": "[1, 2]",
    }
    assert figures.flat(None) == {}
