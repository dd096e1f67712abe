import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailrace.testing import Lineage, Output, OutputRecord, at

ORIGIN = (
    ("tailrace.topic", b"payments"),
    ("tailrace.partition", b"1"),
    ("tailrace.offset", b"9223372036854775807"),
    ("tailrace.event_time", b"1767268830250"),
)


def record(row: Any = None, *headers: tuple[str, bytes]) -> OutputRecord:
    return OutputRecord("decisions", None, None if row is None else json.dumps(row).encode(), headers)


def output(*rows: Any) -> Output:
    return Output([record(row) for row in rows], [], {})


def test_a_value_is_parsed_as_json_and_none_stays_none() -> None:
    assert record({"id": 1}).row == {"id": 1}
    assert record(None).row is None
    assert output({"id": 1}, None, [2]).rows == [{"id": 1}, None, [2]]


def test_the_last_header_of_a_name_counts() -> None:
    twice = record(None, ("a", b"1"), ("b", b"2"), ("a", b"3"))
    assert twice.header("a") == b"3"
    assert twice.header("b") == b"2"
    assert twice.header("A") is None


@given(headers=st.lists(st.tuples(st.sampled_from("abc"), st.binary(max_size=2))), name=st.sampled_from("abcd"))
def test_headers_are_a_mapping_in_which_the_last_wins(headers: list[tuple[str, bytes]], name: str) -> None:
    assert record(None, *headers).header(name) == dict(headers).get(name)


def test_lineage_is_parsed_from_the_headers() -> None:
    assert record(None, ("own", b"x"), *ORIGIN).lineage == Lineage(
        "payments", 1, 9223372036854775807, at("12:00:30.250")
    )


def test_a_record_without_lineage_has_none() -> None:
    assert record(None).lineage == Lineage(None, None, None, None)
    assert record(None, *ORIGIN[3:]).lineage == Lineage(None, None, None, at("12:00:30.250")), "as after an aggregate"


def test_the_lineage_of_the_last_pipeline_counts() -> None:
    later = (("tailrace.topic", b"decisions"), ("tailrace.partition", b"0"), ("tailrace.offset", b"4"))
    assert record(None, *ORIGIN, *later).lineage == Lineage("decisions", 0, 4, at("12:00:30.250"))


@given(milliseconds=st.integers(-(10**11), 4 * 10**12))
def test_an_event_time_is_exact_to_the_millisecond(milliseconds: int) -> None:
    event_time = record(None, ("tailrace.event_time", str(milliseconds).encode())).lineage.event_time
    assert event_time == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def test_the_last_row_of_each_value_of_a_column() -> None:
    results = output({"card": "a", "total": 1}, {"card": "b", "total": 5}, {"card": "a", "total": 3})
    assert results.last("card") == {"a": {"card": "a", "total": 3}, "b": {"card": "b", "total": 5}}


def test_several_columns_make_a_key() -> None:
    results = output({"card": "a", "day": 1, "n": 1}, {"card": "a", "day": 2, "n": 1}, {"card": "a", "day": 1, "n": 2})
    assert {key: row["n"] for key, row in results.last("card", "day").items()} == {("a", 1): 2, ("a", 2): 1}


def test_a_window_key_does_not_depend_on_the_order_of_its_fields() -> None:
    results = output(
        {"window": {"start": "12:00", "end": "12:01"}, "n": 1},
        {"window": {"end": "12:01", "start": "12:00"}, "n": 2},
        {"window": {"start": "12:01", "end": "12:02"}, "n": 7},
    )
    assert [(json.loads(key)["start"], row["n"]) for key, row in results.last("window").items()] == [
        ("12:00", 2),
        ("12:01", 7),
    ]


def test_a_missing_column_is_none() -> None:
    assert output({"total": 1}, {"card": None, "total": 2}).last("card") == {None: {"card": None, "total": 2}}


def test_no_rows_have_no_last_rows() -> None:
    assert output().last("card") == {}
    assert output().rows == []


@given(rows=st.lists(st.fixed_dictionaries({"k": st.sampled_from("abc"), "n": st.integers()})))
def test_every_value_has_one_last_row(rows: list[dict[str, Any]]) -> None:
    assert output(*rows).last("k") == {row["k"]: row for row in rows}
