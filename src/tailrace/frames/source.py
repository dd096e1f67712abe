"""Kafka bytes to columns: a source's records as the DataFrame that the user's function gets."""

import json
import re
from collections.abc import Mapping, Sequence

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from tailrace.engine import RECORD, DeadLetterTopic, RecordCheck, RecordCounts, read_records
from tailrace.errors import SchemaInvalid, SchemaMismatch
from tailrace.frames.names import EVENT_TIME, OFFSET, PARTITION, RAW, SOURCE, TOPIC, quoted
from tailrace.kafka.client import java_client_options
from tailrace.kafka.topics import ClientConfig, newest_records
from tailrace.pipeline import RESERVED_PREFIX, KafkaSource, Pipeline

_LOOK_AT = 20
_JUDGE_FROM = 5
"""If this many records fit the schema in no column, the schema is wrong; fewer prove nothing."""


_NAME_COLUMNS = 'name columns and types: "id string, amount double, at timestamp"'
_CONDITION = re.compile(r"\[[A-Z0-9_.]+\] | SQLSTATE: \w+")
"""The parts of Spark's messages that are meant for programs."""
_PLAIN = {
    "string": StructType([StructField("value", StringType())]),
    "bytes": StructType([StructField("value", BinaryType())]),
}
_METADATA = ("topic", "partition", "offset", "timestamp", "key", "headers")


def record_schema(source: KafkaSource) -> StructType:
    """Return the columns of a source's records.

    Raises:
        SchemaInvalid: The schema cannot be parsed, or its names clash with others.
    """
    schema = _PLAIN.get(source.format) or _parsed_schema(source)
    _require_names(source, schema.fieldNames())
    if source.event_time is not None:
        _require_timestamp(source, schema)
    return schema


def _require_names(source: KafkaSource, names: Sequence[str]) -> None:
    """Refuse names that clash; Spark ignores case."""
    if not names:
        raise SchemaInvalid(f"the schema of {source.in_words} has no column", fix='schema="id string, ..."')
    seen = {(source.metadata or "").lower()}
    for name in names:
        if name.lower().startswith(RESERVED_PREFIX) or name == source.metadata:
            what = "a name that Tailrace reserves"
        elif name.lower() in seen:
            what = "twice; case does not count"
        else:
            seen.add(name.lower())
            continue
        raise SchemaInvalid(
            f"the schema of {source.in_words} has a column {name!r}, {what}",
            fix="rename that column, or give metadata= another name",
        )


def _require_timestamp(source: KafkaSource, schema: StructType) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if not isinstance(kinds.get(source.event_time or ""), TimestampType):
        raise SchemaInvalid(
            f"event_time={source.event_time!r} is not a timestamp column of {source.in_words}",
            why=f"its columns are {', '.join(schema.fieldNames())}",
            fix=f'declare it in the schema: "{source.event_time} timestamp"',
        )


def _parsed_schema(source: KafkaSource) -> StructType:
    if not isinstance(source.schema, str):
        if not isinstance(source.schema, StructType):
            raise SchemaInvalid(
                f"the schema of {source.in_words} is a {type(source.schema).__name__}",
                fix='give a DDL string ("id string, amount double") or a StructType',
            )
        return source.schema
    try:
        parsed = StructType.fromDDL(source.schema)
    except (ParseException, AnalysisException) as wrong:
        message = (wrong.getMessage() or str(wrong)).strip().splitlines()
        raise SchemaInvalid(
            f"the schema {source.schema!r} cannot be parsed",
            why=_CONDITION.sub("", next((line for line in message if line.strip()), "")).strip(),
            fix=_NAME_COLUMNS,
        ) from wrong
    if not isinstance(parsed, StructType):
        raise SchemaInvalid(
            f"the schema {source.schema!r} is a single type, not a list of columns",
            fix=_NAME_COLUMNS,
        )
    return parsed


def require_fitting_records(
    config: ClientConfig, source: KafkaSource, topics: Sequence[str], schema: StructType
) -> None:
    """Refuse a schema that fits none of the newest records.

    Raises:
        SchemaMismatch: None of them is a JSON object with a column of the schema.
    """
    if source.format != "json":
        return
    columns = set(schema.fieldNames())
    values = newest_records(config, topics, _LOOK_AT)
    if len(values) < _JUDGE_FROM:
        return
    objects = [each for each in map(_json_object, values) if each is not None]
    if any(columns & each.keys() for each in objects):
        return
    example = sorted(objects[-1])[:8] if objects else None
    raise SchemaMismatch(
        f"none of the newest {len(values)} records in {source.in_words} has a column of the schema",
        why=(
            f"they have {', '.join(example)}; the schema has {', '.join(schema.fieldNames())}"
            if example
            else "they are not JSON objects"
        )
        + ": every column would be null",
        fix="correct schema= in KafkaSource, or the topic",
    )


def kafka_frame(
    pipeline: Pipeline,
    source: KafkaSource,
    spark: SparkSession,
    bootstrap_servers: str,
    bounds: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the records of a source, unparsed.

    Args:
        pipeline: The pipeline.
        source: One of its sources.
        spark: The session of this query.
        bootstrap_servers: The brokers.
        bounds: The offsets of a batch; None for a stream.
    """
    reader = spark.readStream if bounds is None else spark.read
    return (
        reader.format("kafka")
        .options(**source.options)
        .options(**source.subscription)
        .options(**(source.starting_options if bounds is None else bounds))
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("includeHeaders", source.metadata is not None or pipeline.dead_letter_topic is not None)
        .load()
    )


def source_frame(
    pipeline: Pipeline, number: int, raw: DataFrame, bootstrap_servers: str
) -> tuple[DataFrame, RecordCounts]:
    """Return the DataFrame for the user's function and the counts of its records.

    The plan below it has hidden columns, which lineage needs.

    Args:
        pipeline: The pipeline, which defines what happens to a malformed record.
        number: The number of one of its sources.
        raw: The source's records, with the columns of Spark's Kafka source.
        bootstrap_servers: The brokers.
    """
    source = pipeline.sources[number]
    schema = record_schema(source)
    checked, counts = read_records(raw, _record_check(pipeline, number, schema, bootstrap_servers))
    metadata = [F.struct(*_METADATA).alias(source.metadata)] if source.metadata is not None else []
    hidden = _hidden_columns(pipeline, source) if pipeline.lineage else []
    whole = checked.select(RECORD, *metadata, *hidden)
    shown = [F.col(quoted(RECORD) + "." + quoted(name)) for name in schema.fieldNames()]
    return whole.select(*shown, *([quoted(source.metadata)] if source.metadata is not None else [])), counts


def _hidden_columns(pipeline: Pipeline, source: KafkaSource) -> list[Column]:
    event_time = F.col("timestamp")
    if source.event_time is not None:
        event_time = F.coalesce(F.col(quoted(RECORD) + "." + quoted(source.event_time)), event_time)
    return [
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        event_time.alias(EVENT_TIME),
        F.col(SOURCE),
        *([F.struct("value", "key", "headers").alias(RAW)] if pipeline.python_errors == "dead-letter" else []),
    ]


def dead_letter_producer(pipeline: Pipeline, bootstrap_servers: str) -> dict[str, str]:
    """Return the configuration of the producer for dead letters.

    It equals the configuration of Spark's sink, so the connector shares one producer between both.
    """
    serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
    return java_client_options(pipeline.sink.options) | {
        "bootstrap.servers": bootstrap_servers,
        "key.serializer": serializer,
        "value.serializer": serializer,
    }


def dead_letter_topic(pipeline: Pipeline, bootstrap_servers: str) -> DeadLetterTopic | None:
    """Return the pipeline's topic for dead letters; None if it has none."""
    if pipeline.dead_letter_topic is None:
        return None
    return DeadLetterTopic(pipeline.name, pipeline.dead_letter_topic, dead_letter_producer(pipeline, bootstrap_servers))


def _record_check(pipeline: Pipeline, number: int, schema: StructType, bootstrap_servers: str) -> RecordCheck:
    source = pipeline.sources[number]
    return RecordCheck(
        source.format,
        schema.json(),
        source.json_options,
        pipeline.malformed,
        pipeline.name,
        pipeline.dead_letter_topic,
        dead_letter_producer(pipeline, bootstrap_servers),
        number,
    )


def _json_object(value: bytes) -> dict[str, object] | None:
    try:
        parsed = json.loads(value)
    except (ValueError, UnicodeDecodeError):
        return None
    return parsed if isinstance(parsed, dict) else None
