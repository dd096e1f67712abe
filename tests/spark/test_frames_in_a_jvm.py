"""How Spark itself reads a schema, and what it makes of a pipeline's columns. Nothing is read from Kafka for that."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# One program answers all questions: a JVM's start is what costs.
PROGRAM = """\
import json
import tailrace as tr
from tailrace.errors import TailraceError
from tailrace.frames.pipeline import pipeline_frame
from tailrace.frames.source import record_schema
from tailrace.spark_session import end_session

spark = tr.session(master="local[1]", conf={"spark.ui.enabled": "false"})


def schema(ddl, **more):
    try:
        return record_schema(tr.KafkaSource("payments", ddl, **more)).simpleString()
    except TailraceError as refused:
        return {"code": refused.code, "what": refused.what, "why": refused.why, "fix": refused.fix}


def given(**more):
    '''The columns that the user's function gets.'''
    seen = []
    source = tr.KafkaSource("payments", "id string, at timestamp", **more)
    pipeline = tr.Pipeline("fraud", source, lambda frame: (seen.append(frame), frame)[1], tr.KafkaSink("decisions"))
    pipeline_frame(pipeline, spark, "broker.example:9092", carries_python=False)
    return seen[0].schema.simpleString()


def written(transform=lambda frame: frame, lineage=True, **sink):
    '''The columns that Spark's Kafka sink gets.'''
    source = tr.KafkaSource("payments", "id string, at timestamp")
    pipeline = tr.Pipeline("fraud", source, transform, tr.KafkaSink("decisions", **sink), lineage=lineage)
    return pipeline_frame(pipeline, spark, "broker.example:9092", carries_python=False).rows.schema.simpleString()


answers = {
    "columns": schema("id string not null, amount double, at timestamp"),
    "struct": schema("struct<id: string>"),
    "unknown type": schema("id strin"),
    "no type": schema("id"),
    "cut off": schema("id string, amount"),
    "single type": schema("int"),
    "array": schema("array<int>"),
    "clash": schema("id string, kafka string", metadata="kafka"),
    "reserved": schema("id string, __tailrace_offset long"),
    "event time": schema("id string, at timestamp", event_time="at"),
    "text as event time": schema("id string, at string", event_time="at"),
    "metadata": given(metadata="kafka"),
    "metadata with a dot": given(metadata="kafka.meta"),
    "metadata with a quote": given(metadata="ka`fka"),
    "no metadata": given(),
    "written": written(),
    "written without lineage": written(lineage=False),
    "no headers": written(headers={}),
    "no headers without lineage": written(lineage=False, headers={}),
    "headers": written(lineage=False, headers={"a": "id", "b": "at"}),
    "routed": written(topic_column="id", key="at", lineage=False),
}
end_session()
print(json.dumps(answers))
"""
METADATA = (
    "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,key:binary,"
    "headers:array<struct<key:string,value:binary>>>"
)
HEADERS = "headers:array<struct<key:string,value:binary>>"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path_factory.mktemp("frames"),
        env=mine,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    values: dict[str, Any] = json.loads(result.stdout)
    return values


def test_a_ddl_string_is_a_list_of_columns(answers: dict[str, Any]) -> None:
    assert answers["columns"] == "struct<id:string,amount:double,at:timestamp>"
    assert answers["struct"] == "struct<id:string>"
    assert answers["event time"] == "struct<id:string,at:timestamp>"


@pytest.mark.parametrize("wrong", ["unknown type", "no type", "cut off"])
def test_a_ddl_string_that_spark_cannot_read_is_refused_with_its_reason(answers: dict[str, Any], wrong: str) -> None:
    refused = answers[wrong]
    assert refused["code"] == "SCHEMA_INVALID"
    assert refused["what"].endswith("cannot be parsed")
    assert refused["why"]
    assert len(refused["why"].splitlines()) == 1
    assert "id string" in refused["fix"]


@pytest.mark.parametrize("wrong", ["single type", "array"])
def test_a_single_type_is_no_list_of_columns(answers: dict[str, Any], wrong: str) -> None:
    assert answers[wrong]["code"] == "SCHEMA_INVALID"
    assert answers[wrong]["what"].endswith("is a single type, not a list of columns")


def test_columns_that_tailrace_would_add_are_refused(answers: dict[str, Any]) -> None:
    assert answers["clash"]["what"] == "the schema of payments has a column 'kafka', a name that Tailrace reserves"
    assert "metadata=" in answers["clash"]["fix"]
    assert "'__tailrace_offset'" in answers["reserved"]["what"]
    assert answers["reserved"]["fix"] == "rename that column, or give metadata= another name"


def test_event_time_must_be_a_timestamp(answers: dict[str, Any]) -> None:
    assert answers["text as event time"]["what"] == "event_time='at' is not a timestamp column of payments"
    assert answers["text as event time"]["why"] == "its columns are id, at"


def test_metadata_is_one_column_more_whatever_its_name(answers: dict[str, Any]) -> None:
    assert answers["no metadata"] == "struct<id:string,at:timestamp>", "what is hidden is not seen"
    assert answers["metadata"] == f"struct<id:string,at:timestamp,kafka:{METADATA}>"
    assert answers["metadata with a dot"] == f"struct<id:string,at:timestamp,kafka.meta:{METADATA}>"
    assert answers["metadata with a quote"] == f"struct<id:string,at:timestamp,ka`fka:{METADATA}>"


def test_the_kafka_sink_gets_columns_that_it_knows(answers: dict[str, Any]) -> None:
    assert answers["written"] == f"struct<value:binary,{HEADERS}>"
    assert answers["written without lineage"] == "struct<value:binary>"
    assert answers["headers"] == f"struct<value:binary,{HEADERS}>"
    assert answers["routed"] == "struct<value:binary,key:binary,topic:string>"


def test_an_empty_set_of_headers_is_none(answers: dict[str, Any]) -> None:
    assert answers["no headers"] == answers["written"]
    assert answers["no headers without lineage"] == answers["written without lineage"]
