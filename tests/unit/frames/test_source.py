"""What can be said of a source's records without Spark. How Spark reads a DDL string: tests/spark."""

import json
from typing import Any

import pytest
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.errors import SchemaInvalid, SchemaMismatch
from tailrace.frames import source as source_frame
from tailrace.frames.source import record_schema, require_fitting_records
from tailrace.pipeline import RESERVED_PREFIX, KafkaSource

COLUMNS = StructType(
    [StructField("id", StringType()), StructField("at", TimestampType()), StructField("sent_ns", LongType())]
)
CONFIG = {"bootstrap.servers": "broker.example:9092"}


def test_a_struct_type_is_accepted_as_schema() -> None:
    assert record_schema(KafkaSource("payments", COLUMNS)) is COLUMNS


@pytest.mark.parametrize(("plain", "kind"), [("string", StringType()), ("bytes", BinaryType())])
def test_records_that_are_not_json_have_one_column(plain: str, kind: Any) -> None:
    assert record_schema(KafkaSource("payments", format=plain)) == StructType([StructField("value", kind)])


def test_a_schema_of_another_type_is_refused() -> None:
    wrong: Any = ["id string"]
    with pytest.raises(SchemaInvalid, match="the schema of payments is a list"):
        record_schema(KafkaSource("payments", wrong))


def test_metadata_must_not_have_the_name_of_a_column() -> None:
    with pytest.raises(SchemaInvalid, match="has a column 'id'") as refused:
        record_schema(KafkaSource("payments", COLUMNS, metadata="id"))
    assert "metadata=" in refused.value.fix
    with pytest.raises(SchemaInvalid, match="has a column 'value'"):
        record_schema(KafkaSource("payments", format="bytes", metadata="value"))
    assert record_schema(KafkaSource("payments", COLUMNS, metadata="kafka")) is COLUMNS, "it is added later"


def test_a_column_must_not_start_with_the_hidden_prefix() -> None:
    schema = StructType([StructField("id", StringType()), StructField(f"{RESERVED_PREFIX}offset", LongType())])
    with pytest.raises(SchemaInvalid, match=f"has a column '{RESERVED_PREFIX}offset'") as refused:
        record_schema(KafkaSource(pattern="payments-.*", schema=schema))
    assert refused.value.what.startswith("the schema of topics like payments-.* has")
    assert refused.value.fix.startswith("rename that column")


def test_event_time_is_a_timestamp_of_the_schema() -> None:
    assert record_schema(KafkaSource("payments", COLUMNS, event_time="at")) is COLUMNS


@pytest.mark.parametrize("column", ["sent_ns", "absent", "At", ""])
def test_event_time_of_another_type_is_refused_with_the_columns(column: str) -> None:
    with pytest.raises(SchemaInvalid, match="is not a timestamp column of payments") as refused:
        record_schema(KafkaSource("payments", COLUMNS, event_time=column))
    assert repr(column) in refused.value.what
    assert refused.value.why == "its columns are id, at, sent_ns"
    assert f"{column} timestamp" in refused.value.fix


def test_event_time_without_a_time_zone_is_refused() -> None:
    schema = StructType([StructField("at", TimestampNTZType())])
    with pytest.raises(SchemaInvalid, match="is not a timestamp column"):
        record_schema(KafkaSource("payments", schema, event_time="at"))


def compare(
    monkeypatch: pytest.MonkeyPatch, values: list[bytes], source: KafkaSource | None = None, schema: Any = COLUMNS
) -> None:
    monkeypatch.setattr(source_frame, "newest_records", lambda _config, _topics, _count: values)
    require_fitting_records(CONFIG, source or KafkaSource("payments", COLUMNS), ["payments"], schema)


def test_one_record_with_one_column_of_the_schema_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compare(monkeypatch, [b"oops", b"7", b"[]", b"\xff", b'{"id": null}'])


def test_names_are_case_sensitive(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchemaMismatch, match="none of the newest 5 records"):
        compare(monkeypatch, [b'{"ID": 1}'] * 5)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_few_records_are_no_mismatch(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    compare(monkeypatch, [b"oops"] * count)


def test_records_with_other_columns_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    other = json.dumps({"user": 1, "url": "/"}).encode()
    with pytest.raises(SchemaMismatch) as refused:
        compare(monkeypatch, [b"oops", *[other] * 5])
    assert refused.value.what == "none of the newest 6 records in payments has a column of the schema"
    assert refused.value.why == "they have url, user; the schema has id, at, sent_ns: every column would be null"


def test_records_that_are_no_json_objects_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SchemaMismatch) as refused:
        compare(monkeypatch, [b"oops", b"7", b"[]", b"\xff\xfe", b"null"])
    assert refused.value.why == "they are not JSON objects: every column would be null"


@pytest.mark.parametrize("plain", ["string", "bytes"])
def test_text_and_bytes_always_fit(monkeypatch: pytest.MonkeyPatch, plain: str) -> None:
    source = KafkaSource("payments", format=plain)
    compare(monkeypatch, [b"oops"] * 20, source, record_schema(source))
