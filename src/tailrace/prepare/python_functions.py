"""Python functions on a query's own session: on what path they run, and what happens where one fails."""

from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.frames.source import dead_letter_producer
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.options import RunOptions
from tailrace.worker import pickled_half


def carry_functions(
    own: SparkSession, query: str, options: RunOptions, pipeline: Pipeline | None = None, bootstrap_servers: str = ""
) -> engine.FunctionCosts | None:
    """Let the engine run the Python functions of a query, where it is to; what they cost is counted from then on.

    In micro-batch Spark's own operators run them, unless the pipeline wants dead letters of what fails: they make none.
    """
    box = _dead_letters(pipeline, bootstrap_servers)
    if not carries_functions(options.planned_mode, pipeline):
        return None
    return engine.carry_python(
        own, query, pickled_half(), limit_ms=options.python_timeout_ms, dead_letters=box, always=box is not None
    )


def carries_functions(mode: Mode | None, pipeline: Pipeline | None) -> bool:
    """Whether the engine runs the Python functions of a query; without a mode it is a batch."""
    return mode is Mode.REALTIME or (pipeline is not None and pipeline.python_errors == "dead-letter")


def _dead_letters(pipeline: Pipeline | None, bootstrap_servers: str) -> engine.DeadLetterBox | None:
    if pipeline is None or pipeline.python_errors != "dead-letter" or pipeline.dead_letter_topic is None:
        return None
    producer = dead_letter_producer(pipeline, bootstrap_servers)
    return engine.DeadLetterBox(pipeline.name, pipeline.dead_letter_topic, producer)
