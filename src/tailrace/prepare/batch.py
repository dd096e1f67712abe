"""Run a pipeline as one batch over given records: the reference for its results, and how letters are replayed."""

from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame, SparkSession

from tailrace.conditions.failures import translate_failure
from tailrace.engine import clone_session, malformed_in_all, save
from tailrace.frames.pipeline import pipeline_frame
from tailrace.frames.sink import size_limits
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.options import RunOptions
from tailrace.prepare.python_functions import install_functions


def run_batch(
    pipeline: Pipeline,
    spark: SparkSession,
    bootstrap_servers: str,
    read: Callable[[SparkSession], Sequence[DataFrame]],
) -> dict[str, int]:
    """Read, transform and write once; return the number of malformed records by reason.

    Args:
        pipeline: The pipeline.
        spark: A session; its settings stay as they are.
        bootstrap_servers: The brokers.
        read: Returns the records of each source on a session, with the columns of Spark's Kafka source.
    """
    own = clone_session(spark)
    costs = install_functions(own, pipeline.name, RunOptions(Mode.MICROBATCH), pipeline, bootstrap_servers)
    limits = size_limits(pipeline.sink, None)
    frame = pipeline_frame(pipeline, own, bootstrap_servers, read(own), carries_python=costs is not None, limits=limits)
    writer = frame.rows.write.format("kafka").options(**pipeline.sink.options).options(**pipeline.sink.destination)
    failed = save(writer.option("kafka.bootstrap.servers", bootstrap_servers))
    if failed is not None:
        raise translate_failure(pipeline.name, failed)
    return malformed_in_all(frame.counts)
