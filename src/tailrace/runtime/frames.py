"""A pipeline's definition as DataFrames: Kafka bytes to columns, the user's function, columns to Kafka bytes."""

import json

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from tailrace.errors import ColumnMissing, DefinitionError, SchemaInvalid, SchemaMismatch
from tailrace.kafka.topics import ClientConfig, newest_records
from tailrace.pipeline import KafkaSource, Pipeline
from tailrace.runtime.usercode import user_code

_LOOK_AT = 20
_JUDGE_FROM = 5
"""A single odd record proves nothing; from this many on, a schema that fits none of them is a mistake."""


def parsed_schema(source: KafkaSource) -> StructType:
    """The schema as a type.

    Raises:
        SchemaInvalid: Its text cannot be understood, or it is not a list of columns.
    """
    if not isinstance(source.schema, str):
        if not isinstance(source.schema, StructType):
            raise SchemaInvalid(
                f"the schema of {', '.join(source.topic_names)} is a {type(source.schema).__name__}",
                fix='give a DDL string ("id string, amount double") or a StructType',
            )
        return source.schema
    try:
        parsed = StructType.fromDDL(source.schema)
    except (ParseException, AnalysisException) as wrong:
        message = (wrong.getMessage() or str(wrong)).strip().splitlines()
        raise SchemaInvalid(
            f"the schema {source.schema!r} cannot be understood",
            why=next((line for line in message if line.strip()), ""),
            fix='name columns and types: "id string, amount double, at timestamp"',
        ) from wrong
    if not isinstance(parsed, StructType):
        raise SchemaInvalid(
            f"the schema {source.schema!r} is a single type, not a list of columns",
            fix='name columns and types: "id string, amount double, at timestamp"',
        )
    return parsed


def require_fitting_records(config: ClientConfig, source: KafkaSource, schema: StructType) -> None:
    """Look at the newest records and refuse a schema that fits none of them.

    Raises:
        SchemaMismatch: Not one of them is a JSON object with a column of the schema.
    """
    columns = {name.lower() for name in schema.fieldNames()}
    values = newest_records(config, source.topic_names, _LOOK_AT)
    if len(values) < _JUDGE_FROM:
        return
    objects = [found for found in map(_json_object, values) if found is not None]
    if any(columns & {key.lower() for key in found} for found in objects):
        return
    example = sorted(objects[-1])[:8] if objects else None
    raise SchemaMismatch(
        f"none of the newest {len(values)} records in {', '.join(source.topic_names)} has a column of the schema",
        why=(
            f"they have {', '.join(example)}; the schema has {', '.join(schema.fieldNames())}"
            if example
            else "they are not JSON objects"
        )
        + ": every column would be null",
        fix="correct schema= in KafkaSource, or the topic",
    )


def result_frame(pipeline: Pipeline, spark: SparkSession, bootstrap_servers: str, schema: StructType) -> DataFrame:
    """The rows to write: the topic's records, parsed, through the user's function, as Kafka key and value."""
    reader = spark.readStream.format("kafka").options(**pipeline.source.options)
    raw = (
        reader.option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", ",".join(pipeline.source.topic_names))
        .option("startingOffsets", pipeline.source.starting_offsets)
        .load()
    )
    record = F.from_json(F.col("value").cast("string"), schema)
    parsed = raw.select(record.alias("record")).select("record.*")
    with user_code(f"the function of pipeline {pipeline.name!r}"):
        result = pipeline.transform(parsed)
    if not isinstance(result, DataFrame):
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} returned {type(result).__name__}, not a DataFrame",
            fix="return the DataFrame that is to be written",
        )
    return _as_kafka_rows(pipeline, result)


def _as_kafka_rows(pipeline: Pipeline, result: DataFrame) -> DataFrame:
    value = F.to_json(F.struct(*(F.col(_quoted(name)) for name in result.columns)))
    if pipeline.sink.key is None:
        return result.select(value.alias("value"))
    if pipeline.sink.key not in result.columns:
        raise ColumnMissing(
            f"the sink's key {pipeline.sink.key!r} is not a column of what pipeline {pipeline.name!r} writes",
            why=f"its columns are {', '.join(result.columns)}",
            fix="keep that column in the function's result, or name another with KafkaSink(key=...)",
        )
    return result.select(F.col(_quoted(pipeline.sink.key)).cast("string").alias("key"), value.alias("value"))


def _quoted(column: str) -> str:
    """A column's name as Spark reads it literally, dots and all."""
    return "`" + column.replace("`", "``") + "`"


def _json_object(value: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(value)
    except (ValueError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None
