"""A pipeline as one DataFrame: its sources, the user's function, its sink."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tailrace.engine import RecordCounts, SizeLimits, carry_lineage, separate_reads
from tailrace.errors import DefinitionError
from tailrace.frames.names import EVENT_TIME, TOPIC
from tailrace.frames.sink import sink_frame
from tailrace.frames.source import kafka_frame, source_frame
from tailrace.frames.user_code import user_code
from tailrace.pipeline import RESERVED_PREFIX, Pipeline


@dataclass(frozen=True)
class PipelineFrame:
    """The rows that a pipeline writes."""

    rows: DataFrame
    counts: tuple[RecordCounts, ...]
    reads: tuple[int, ...]
    """How often the function uses each source, and the query reads it."""
    lost: str
    """What the outputs do not say about a record's origin, as a sentence; empty if nothing is lost."""
    given: tuple[DataFrame, ...]
    """The rows of each source, which its function was given."""
    returned: DataFrame
    """The rows that its function returned."""


def pipeline_frame(
    pipeline: Pipeline,
    spark: SparkSession,
    bootstrap_servers: str,
    raw: Sequence[DataFrame] | None = None,
    *,
    carries_python: bool,
    limits: SizeLimits | None = None,
) -> PipelineFrame:
    """Return the rows that a pipeline writes: a stream, or a batch of the given records.

    Args:
        pipeline: The pipeline.
        spark: The session of this query.
        bootstrap_servers: The brokers.
        raw: The records of each source, with the columns of Spark's Kafka source; by default, those of its topics.
        carries_python: Whether the engine runs its Python functions on that session.
        limits: The largest results; a larger one ends the query. None if the sink itself looks at the sizes.
    """
    if raw is None:
        raw = [kafka_frame(pipeline, source, spark, bootstrap_servers) for source in pipeline.sources]
    sources = [source_frame(pipeline, number, records, bootstrap_servers) for number, records in enumerate(raw)]
    _let_workers_import(spark, pipeline)
    with user_code(f"the function of pipeline {pipeline.name!r}"):
        result = pipeline.transform(*(frame for frame, _ in sources))
    if not isinstance(result, DataFrame):
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} returned {type(result).__name__}, not a DataFrame",
            fix="return the DataFrame to write",
        )
    reserved = [name for name in result.columns if name.lower().startswith(RESERVED_PREFIX)]
    if reserved:
        raise DefinitionError(
            f"the function of pipeline {pipeline.name!r} returns a column {reserved[0]!r}",
            why=f"names that begin with {RESERVED_PREFIX} are reserved",
            fix="rename it",
        )
    counts = tuple(counted for _, counted in sources)
    reads = tuple(counted.uses(result) for counted in counts)
    _require_every_source(pipeline, reads)
    if max(reads) > 1:
        result = separate_reads(result)
    carried = carry_lineage(result, python=carries_python) if pipeline.lineage else result
    return PipelineFrame(
        sink_frame(pipeline, carried, limits),
        counts,
        reads,
        _lost(pipeline, carried),
        tuple(frame for frame, _ in sources),
        result,
    )


def _let_workers_import(spark: SparkSession, pipeline: Pipeline) -> None:
    """Let Python workers import the function's file and the modules beside it, like the driver."""
    module = sys.modules.get(getattr(pipeline.transform, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return
    folder = str(Path(file).resolve().parents[module.__name__.count(".")])
    environment = spark.sparkContext.environment
    known = environment.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in known:
        environment["PYTHONPATH"] = os.pathsep.join([each for each in known if each] + [folder])


def _require_every_source(pipeline: Pipeline, reads: Sequence[int]) -> None:
    for source, number in zip(pipeline.sources, reads, strict=True):
        if number == 0:
            raise DefinitionError(
                f"the function of pipeline {pipeline.name!r} does not use its source {source.in_words}",
                why="nothing would read that source",
                fix="use its DataFrame, or remove that source from the pipeline",
            )


def _lost(pipeline: Pipeline, result: DataFrame) -> str:
    if not pipeline.lineage:
        return "off: outputs have no coordinates and no event time"
    if TOPIC in result.columns:
        return ""
    if EVENT_TIME in result.columns or pipeline.sink.event_time is not None:
        return "outputs have an event time but no coordinates: an aggregate makes one row from many records"
    return "outputs have neither coordinates nor event time: an operation of the function creates new rows"
