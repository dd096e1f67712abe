"""Columns to Kafka bytes: the result of the user's function as the rows that Spark's Kafka sink writes."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.engine import SizeLimits, require_sizes, with_lineage_headers
from tailrace.errors import ColumnMissing, DefinitionError
from tailrace.frames.names import EVENT_TIME, OWN_HEADERS, quoted
from tailrace.pipeline import RESERVED_PREFIX, KafkaSink, Pipeline

_MAX_REQUEST_SIZE = 1024 * 1024
"""The producer's default."""
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
"""The headers of Spark's Kafka source and sink."""


def sink_frame(pipeline: Pipeline, result: DataFrame, limits: SizeLimits | None) -> DataFrame:
    """Return the rows to write, with the columns of Spark's Kafka sink: key, value, topic, headers.

    Args:
        pipeline: The pipeline.
        result: The result of its function, with the hidden columns.
        limits: The largest results; a larger one ends the query. None if the sink itself looks at the sizes.

    Raises:
        ColumnMissing: The sink names a column that the result does not have.
        DefinitionError: A column is not of the type that the sink needs.
    """
    sink = pipeline.sink
    hidden = [name for name in result.columns if name.startswith(RESERVED_PREFIX)]
    shown = {field.name: field.dataType for field in result.schema.fields if field.name not in hidden}
    _require_columns(pipeline, [name for name in result.columns if name not in hidden], shown)
    columns = [_value(sink, shown).cast("binary").alias("value")]
    if sink.key is not None:
        columns.append(_as_text(sink.key, shown[sink.key]).cast("binary").alias("key"))
    if sink.topic_column is not None:
        topic = F.col(quoted(sink.topic_column)).cast("string")
        columns.append((F.coalesce(topic, F.lit(sink.topic)) if sink.topic else topic).alias("topic"))
    own = _own_headers(sink, shown)
    if own is not None:
        columns.append(own.alias(OWN_HEADERS if pipeline.lineage else "headers"))
    if not pipeline.lineage:
        return _with_limits(result.select(*columns), limits)
    if sink.event_time is not None:
        result = result.withColumn(EVENT_TIME, F.col(quoted(sink.event_time)).cast("timestamp"))
        hidden = [*(name for name in hidden if name != EVENT_TIME), EVENT_TIME]
    headed = with_lineage_headers(result.select(*columns, *hidden), "headers", OWN_HEADERS, sink.topic)
    return _with_limits(headed, limits)


def _with_limits(frame: DataFrame, limits: SizeLimits | None) -> DataFrame:
    if limits is not None:
        return require_sizes(frame, limits)
    return frame.drop(*(name for name in frame.columns if name.startswith(RESERVED_PREFIX)))


def size_limits(sink: KafkaSink, topic_limit: int | None) -> SizeLimits:
    """Return the size that the producer refuses, and the one that the topic refuses unless records are compressed.

    Args:
        sink: The sink.
        topic_limit: Its topic's ``max.message.bytes``; None if it is not known.
    """
    options = {key.lower(): value for key, value in sink.options.items()}
    request = options.get("kafka.max.request.size", "")
    compresses = options.get("kafka.compression.type", "none") != "none"
    return SizeLimits(
        sink.topic,
        int(request) if request.isdigit() else _MAX_REQUEST_SIZE,
        None if compresses or sink.topic_column is not None else topic_limit,
    )


def _require_columns(pipeline: Pipeline, columns: Sequence[str], shown: Mapping[str, DataType]) -> None:
    sink = pipeline.sink
    names = [name.lower() for name in columns]
    twice = [name for name in columns if names.count(name.lower()) > 1]
    if twice:
        raise DefinitionError(
            f"pipeline {pipeline.name!r} writes several columns {twice[0]!r}",
            why="a JSON object has each name once, and Spark ignores case",
            fix="drop or rename one of them",
        )
    wanted = [("key", sink.key), ("topic_column", sink.topic_column), ("value", sink.value)]
    wanted.append(("event_time", sink.event_time))
    if isinstance(sink.headers, str):
        wanted.append(("headers", sink.headers))
    elif sink.headers is not None:
        wanted.extend((f"header {header!r}", column) for header, column in sink.headers.items())
    for role, column in wanted:
        if column is not None and column not in shown:
            raise ColumnMissing(
                f"the sink's {role} {column!r} is not a column of the result of pipeline {pipeline.name!r}",
                why=f"its columns are {', '.join(shown)}",
                fix=f"keep that column in the function's result, or name another with KafkaSink({role.split()[0]}=...)",
            )
    if sink.value is not None and not isinstance(shown[sink.value], StringType | BinaryType):
        raise DefinitionError(
            f"the sink's value {sink.value!r} is of type {shown[sink.value].simpleString()}",
            why="a column that is written unchanged must be a string or binary",
            fix="unset KafkaSink(value=...) to write JSON, or cast the column",
        )
    if isinstance(sink.headers, str) and not _is_headers(shown[sink.headers]):
        raise DefinitionError(
            f"the sink's headers {sink.headers!r} are of type {shown[sink.headers].simpleString()}",
            why="Kafka's headers are names and bytes",
            fix='a column of type array<struct<key string, value binary>>, or columns: headers={"trace": "trace_id"}',
        )

    if sink.event_time is not None and not isinstance(shown[sink.event_time], TimestampType):
        raise DefinitionError(
            f"the sink's event_time {sink.event_time!r} is of type {shown[sink.event_time].simpleString()}",
            fix="name a timestamp column",
        )


def _is_headers(kind: DataType) -> bool:
    return kind.simpleString() == HEADERS.simpleString()


def _value(sink: KafkaSink, shown: Mapping[str, DataType]) -> Column:
    if sink.value is not None:
        return F.col(quoted(sink.value))
    apart = {sink.topic_column, sink.headers if isinstance(sink.headers, str) else None}
    return F.to_json(F.struct(*(F.col(quoted(name)) for name in shown if name not in apart)))


def _own_headers(sink: KafkaSink, shown: Mapping[str, DataType]) -> Column | None:
    if not sink.headers:
        return None
    if isinstance(sink.headers, str):
        return F.col(quoted(sink.headers))
    headers = [
        F.struct(F.lit(header).alias("key"), _as_text(column, shown[column]).cast("binary").alias("value"))
        for header, column in sink.headers.items()
    ]
    return F.array(*headers)


def _as_text(name: str, kind: DataType) -> Column:
    """Return a column for a key or a header: bytes unchanged, nested types as JSON, the rest as text."""
    column = F.col(quoted(name))
    if isinstance(kind, BinaryType):
        return column
    if isinstance(kind, StructType | MapType | ArrayType):
        return F.to_json(column)
    return column.cast("string")
