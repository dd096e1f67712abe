"""A pipeline as one DataFrame: its sources, the user's function, its sink."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tailrace.engine import RecordCounts, carry_lineage
from tailrace.errors import DefinitionError
from tailrace.frames.names import EVENT_TIME, TOPIC
from tailrace.frames.sink import sink_frame
from tailrace.frames.source import source_frame
from tailrace.frames.user_code import user_code
from tailrace.pipeline import RESERVED_PREFIX, KafkaSource, Pipeline


@dataclass(frozen=True)
class PipelineFrame:
    """What a pipeline writes."""

    rows: DataFrame
    counts: tuple[RecordCounts, ...]
    lost: str
    """What of a record's origin its outputs do not carry, in words; or nothing."""


def pipeline_frame(
    pipeline: Pipeline,
    spark: SparkSession,
    bootstrap_servers: str,
    bounds: Sequence[Mapping[str, str]] | None = None,
    *,
    carries_python: bool,
    topic_limit: int | None = None,
) -> PipelineFrame:
    """The rows that a pipeline writes: a stream, or a batch over the given offsets of each source.

    Args:
        pipeline: The pipeline.
        spark: The session of this query.
        bootstrap_servers: The brokers.
        bounds: The offsets of a batch.
        carries_python: Whether the engine runs its Python functions on that session.
        topic_limit: The sink topic's ``max.message.bytes``; None if it is not known.
    """
    made = [
        source_frame(pipeline, source, spark, bootstrap_servers, bounds[number] if bounds is not None else None)
        for number, source in enumerate(pipeline.sources)
    ]
    _let_workers_import(spark, pipeline)
    with user_code(f"the function of pipeline {pipeline.name!r}"):
        result = pipeline.transform(*(frame for frame, _ in made))
    if not isinstance(result, DataFrame):
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} returned {type(result).__name__}, not a DataFrame",
            fix="return the DataFrame that is to be written",
        )
    reserved = [name for name in result.columns if name.lower().startswith(RESERVED_PREFIX)]
    if reserved:
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} makes a column {reserved[0]!r}",
            why=f"columns that begin with {RESERVED_PREFIX} are Tailrace's own",
            fix="give it another name",
        )
    for source, (_, counted) in zip(pipeline.sources, made, strict=True):
        _require_one_use(pipeline, source, counted.uses(result))
    if pipeline.lineage:
        result = carry_lineage(result, python=carries_python)
    counts = tuple(counted for _, counted in made)
    return PipelineFrame(sink_frame(pipeline, result, topic_limit), counts, _lost(pipeline, result))


def _let_workers_import(spark: SparkSession, pipeline: Pipeline) -> None:
    """Let Python workers import the file that the function is in, and what lies beside it, as the driver does."""
    module = sys.modules.get(getattr(pipeline.transform, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return
    folder = str(Path(file).resolve().parents[module.__name__.count(".")])
    environment = spark.sparkContext.environment
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in known:
        environment["PYTHONPATH"] = os.pathsep.join([each for each in known if each] + [folder])


def _require_one_use(pipeline: Pipeline, source: KafkaSource, uses: int) -> None:
    if uses == 0:
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} does not use its source {source.in_words}",
            why="nothing would read that source, and nobody would notice",
            fix="leave that source out of the pipeline, or use its DataFrame",
        )
    if uses > 1:
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} uses its source {source.in_words} {uses} times",
            why="every record would be read, and every malformed one reported, that often; real time has no such reads",
            fix="do it in one pass, such as F.explode(F.array(...)) instead of a union; or write two pipelines",
        )


def _lost(pipeline: Pipeline, result: DataFrame) -> str:
    if not pipeline.lineage:
        return "off: no output says from which record it came, or how old it is"
    if TOPIC in result.columns:
        return ""
    if EVENT_TIME in result.columns or pipeline.sink.event_time is not None:
        return "outputs carry an event time but no coordinates: an aggregate makes one row of many records"
    return "outputs carry neither coordinates nor event time: an operation of the function makes new rows"
