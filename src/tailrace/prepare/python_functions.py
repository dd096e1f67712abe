"""Installs Python functions on the session of a query."""

from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.frames.source import dead_letter_topic
from tailrace.pipeline import Pipeline
from tailrace.prepare.options import RunOptions
from tailrace.worker import pickled_worker


def install_functions(
    session: SparkSession,
    query: str,
    options: RunOptions,
    pipeline: Pipeline | None = None,
    bootstrap_servers: str = "",
) -> engine.FunctionCosts | None:
    """Let the engine run the Python functions of a query, and return their costs; None if Spark runs them.

    In micro-batch Spark's own operators run them, unless the pipeline wants dead letters, which Spark does not write.
    """
    dead_letters = _dead_letters(pipeline, bootstrap_servers)
    if not uses_engine(options, pipeline):
        return None
    return engine.install_python(
        session,
        query,
        pickled_worker(),
        timeout_ms=options.python_timeout_ms,
        dead_letters=dead_letters,
        always=dead_letters is not None,
    )


def uses_engine(options: RunOptions, pipeline: Pipeline | None) -> bool:
    """Return whether the engine runs the Python functions of a query."""
    return options.realtime or (pipeline is not None and pipeline.python_errors == "dead-letter")


def _dead_letters(pipeline: Pipeline | None, bootstrap_servers: str) -> engine.DeadLetterTopic | None:
    if pipeline is None or pipeline.python_errors != "dead-letter":
        return None
    return dead_letter_topic(pipeline, bootstrap_servers)
