import pytest

from tailrace.dead_letters.letter import Letter, newest

from .letters import TIME_MS, letter, record


def test_a_letter_says_where_its_record_is_from() -> None:
    it = letter(before=[("trace", b"t-7"), ("null", None)])
    assert (it.topic, it.partition, it.offset, it.reason, it.attempt) == ("orders", 1, 57, "not_json", 1)
    assert (it.at, it.place) == ("orders-1@57", "0@12")
    assert (it.time_ms, it.event_time_ms) == (TIME_MS, TIME_MS - 5000)
    assert it.own_headers == (("trace", b"t-7"), ("null", None))


def test_the_last_header_of_a_name_counts() -> None:
    again = letter(before=record().headers, attempt=2)
    assert again.attempt == 2
    assert again.own_headers == ()


def test_an_error_may_have_any_bytes() -> None:
    it = record()
    headers = tuple((name, b"\xff" if name == "tailrace.error" else value) for name, value in it.headers)
    parsed = Letter.of(type(it)("shop.dead-letters", 0, 1, None, None, headers))
    assert parsed is not None
    assert parsed.error == "\\xff"


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": None},
        {"pipeline": None},
        {"partition": "one"},
        {"offset": None},
        {"attempt": ""},
        {"time": 10**18},
        {"event_time": -(10**18)},
    ],
    ids=str,
)
def test_other_records_are_no_letters(changes: dict[str, object]) -> None:
    assert Letter.of(record(**changes)) is None


def test_the_newest_come_first() -> None:
    letters = [letter(number, time=TIME_MS + (number * 7) % 10) for number in range(10)]
    kept, total = newest(iter(letters), 3)
    assert [each.time_ms - TIME_MS for each in kept] == [9, 8, 7]
    assert total == 10
    assert newest([], 3) == ([], 0)
