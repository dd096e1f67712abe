import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import DefinitionError
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.testing import CHECKPOINT, MODES, Record, at
from tailrace.testing.rows import Row, encoded, steps

SCHEMA = "id string"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def pipeline(*sources: KafkaSource) -> Pipeline:
    return Pipeline("fraud", sources or (KafkaSource("payments", SCHEMA),), lambda frame: frame, KafkaSink("decisions"))


def test_test_modes_are_batch_and_both_modes_of_a_run() -> None:
    assert MODES == ("batch", "microbatch", "realtime")


@given(row=st.dictionaries(st.text(), JSON, max_size=4))
def test_a_dictionary_becomes_json(row: dict[str, Any]) -> None:
    value = encoded(row)
    assert value is not None
    assert json.loads(value) == row


@given(text=st.text())
def test_text_becomes_utf_8(text: str) -> None:
    assert encoded(text) == text.encode()


@pytest.mark.parametrize("value", [b"", b"\xff\x00", b"{oops", None])
def test_bytes_and_none_are_unchanged(value: bytes | None) -> None:
    assert encoded(value) == value


def test_times_in_a_row_become_text_that_spark_parses() -> None:
    row = {"at": at("12:00:30.250"), "day": date(2026, 1, 2), "all": [at("00:00")], "in": {"at": at("23:59:59")}}
    assert json.loads(encoded(row) or b"") == {
        "at": "2026-01-01T12:00:30.250000+00:00",
        "day": "2026-01-02",
        "all": ["2026-01-01T00:00:00+00:00"],
        "in": {"at": "2026-01-01T23:59:59+00:00"},
    }


@given(moment=st.datetimes(timezones=st.just(UTC)))
def test_times_in_a_row_keep_their_precision(moment: datetime) -> None:
    assert datetime.fromisoformat(json.loads(encoded({"at": moment}) or b"")["at"]) == moment


@pytest.mark.parametrize("value", [Decimal(1), {1, 2}, object()])
def test_values_that_json_lacks_are_refused_with_their_type(value: object) -> None:
    with pytest.raises(TypeError, match=f"a {type(value).__name__} cannot be written as JSON"):
        encoded({"id": value})


def test_rows_become_records_of_the_sources_topic() -> None:
    assert steps(pipeline(), [{"id": 1}, "{oops", b"\xff"]) == [
        [Record({"id": 1}, topic="payments"), Record("{oops", topic="payments"), Record(b"\xff", topic="payments")]
    ]


def test_a_record_keeps_all_its_fields() -> None:
    whole = Record({"id": 1}, "key", [("a", b"1")], partition=1, timestamp=at("12:00"))
    ((kept,),) = steps(pipeline(), [whole])
    assert kept == Record({"id": 1}, "key", [("a", b"1")], "payments", 1, at("12:00"))
    own = Record(None, topic="refunds")
    assert steps(pipeline(), [own]) == [[own]]


def test_the_first_of_several_topics_is_the_default() -> None:
    two = pipeline(KafkaSource(["payments", "refunds"], SCHEMA))
    assert steps(two, ["a", Record("b", topic="refunds")]) == [
        [Record("a", topic="payments"), Record("b", topic="refunds")]
    ]


@pytest.mark.parametrize(
    "sources",
    [
        [KafkaSource("payments", SCHEMA), KafkaSource("refunds", SCHEMA)],
        [KafkaSource(pattern="payments-.*", schema=SCHEMA)],
        [KafkaSource("payments", SCHEMA), KafkaSource(pattern="refunds-.*", schema=SCHEMA)],
    ],
    ids=["several sources", "a pattern", "both"],
)
def test_an_ambiguous_topic_must_be_given(sources: list[KafkaSource]) -> None:
    with pytest.raises(DefinitionError, match="which topic is") as refused:
        steps(pipeline(*sources), [{"id": 1}])
    assert "{'id': 1}" in refused.value.what
    assert "topic=" in refused.value.fix
    named = Record({"id": 1}, topic="payments-eu")
    assert steps(pipeline(*sources), [named]) == [[named]]


def test_a_checkpoint_separates_steps() -> None:
    parts = steps(pipeline(), ["a", "b", CHECKPOINT, "c", CHECKPOINT])
    assert [[record.value for record in part] for part in parts] == [["a", "b"], ["c"], []]
    assert repr(CHECKPOINT) == "CHECKPOINT"


def test_no_rows_are_one_empty_step() -> None:
    assert steps(pipeline(), []) == [[]]


@given(rows=st.lists(st.text(max_size=3) | st.just(CHECKPOINT)))
def test_no_row_is_lost_or_moved(rows: list[Row]) -> None:
    parts = steps(pipeline(), rows)
    assert len(parts) == 1 + sum(row is CHECKPOINT for row in rows)
    assert [record.value for part in parts for record in part] == [row for row in rows if row is not CHECKPOINT]
