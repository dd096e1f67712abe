from datetime import UTC, datetime

import pytest

from tailrace.dead_letters import selection
from tailrace.dead_letters.selection import Selection
from tailrace.errors import OptionRefused

from .letters import TIME_MS, letter


def test_without_options_all_are_selected() -> None:
    assert Selection.of() == Selection()
    assert Selection().takes(letter())


def test_letters_are_selected_by_reason() -> None:
    chosen = Selection.of(reasons=["not_json", "not_utf8"])
    assert chosen.takes(letter())
    assert not chosen.takes(letter(reason="python_error"))


def test_letters_are_selected_by_either_coordinates() -> None:
    assert Selection.of(at=["orders-1@57", "a-b-0@1"]).takes(letter())
    assert Selection.of(at=["a-b-0@1"]).originals == {("a-b", 0, 1)}
    assert not Selection.of(at=["orders-0@57"]).takes(letter())
    assert Selection.of(letters=["0@012"]).takes(letter(12))
    assert not Selection.of(letters=["0@13"]).takes(letter(12))


def test_every_option_must_match() -> None:
    assert not Selection.of(reasons=["not_json"], letters=["0@13"]).takes(letter(12))


@pytest.mark.parametrize("time", ["2026-09-21T14:13:20.123Z", "2026-09-21 16:13:20.123+02:00"])
def test_since_takes_a_time(time: str) -> None:
    chosen = Selection.of(since=time)
    assert chosen.since_ms == TIME_MS
    assert chosen.takes(letter())
    assert not chosen.takes(letter(time=TIME_MS - 1))


def test_since_takes_a_duration() -> None:
    now = datetime.fromtimestamp(TIME_MS / 1000, UTC)
    assert selection._time_ms("1h", now) == TIME_MS - 3_600_000


@pytest.mark.parametrize(
    "options",
    [
        {"since": "yesterday"},
        {"since": "2026-09-21T14:00"},
        {"at": ["orders@7"]},
        {"at": ["57"]},
        {"letters": ["orders-0@7"]},
        {"letters": ["12"]},
    ],
    ids=str,
)
def test_what_cannot_be_parsed_is_refused_with_an_example(options: dict[str, str]) -> None:
    with pytest.raises(OptionRefused) as refused:
        Selection.of(**options)  # type: ignore[arg-type]
    assert refused.value.fix
