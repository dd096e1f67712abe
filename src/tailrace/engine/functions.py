"""Installs the engine's Python functions on a session, and reads what they cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine.gateway import classic_of, jvm_of, tailrace_of


@dataclass(frozen=True)
class DeadLetterTopic:
    """The topic for records on which a function fails."""

    pipeline: str
    topic: str
    producer: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class FunctionCost:
    """The cost of the calls of one Python function.

    Attributes:
        rows: The number of rows that it was called with.
        calls: The number of calls; each call gets the rows that have arrived.
        most_rows: The most rows in one call.
        python_ms: The average time per row in the function, including the conversions by Spark's worker.
        waited_ms: The average time that a row waited for its call.
        trip_ms: The average time from a call to its reply: the function and the transfer in both directions.
        failed: The number of rows on which it failed.
        replaced: The number of workers that were replaced.
    """

    rows: int
    calls: int
    most_rows: int
    python_ms: float
    waited_ms: float
    trip_ms: float
    failed: int
    replaced: int

    @property
    def rows_per_call(self) -> float:
        """The average number of rows in a call."""
        return self.rows / self.calls if self.calls else 0.0


class FunctionCosts:
    """The costs of a running query's functions; Spark's metrics show them, too, until it is closed."""

    def __init__(self, listener: Any) -> None:
        self._listener = listener

    def watch(self) -> None:
        """Start collecting costs."""
        self._listener.open()

    def are_loaded(self, query: StreamingQuery) -> bool:
        """Return whether workers have loaded the functions of a running query; always True on a cluster."""
        execution = query._jsq.streamingQuery().lastExecution()
        return bool(self._listener.areReady(execution.executedPlan()))

    def settle(self) -> None:
        """Wait until the counts of stopped tasks have arrived."""
        self._listener.settle(2000)

    def close(self) -> None:
        """Stop collecting costs."""
        self._listener.close()

    def read(self) -> dict[str, FunctionCost]:
        """Return the cost of each function by its name; running tasks report every few seconds."""
        costs = dict(self._listener.value())
        return {str(name): _cost([int(number) for number in numbers]) for name, numbers in costs.items()}


def _cost(numbers: list[int]) -> FunctionCost:
    rows, calls, most, python_ns, waited_ns, trip_ns, failed, replaced = numbers
    return FunctionCost(
        rows,
        calls,
        most,
        python_ns / 1e6 / rows if rows else 0.0,
        waited_ns / 1e6 / rows if rows else 0.0,
        trip_ns / 1e6 / calls if calls else 0.0,
        failed,
        replaced,
    )


def install_python(
    spark: SparkSession,
    query: str,
    worker: bytes,
    *,
    timeout_ms: int,
    dead_letters: DeadLetterTopic | None,
    always: bool,
) -> FunctionCosts:
    """Let the engine run the Python functions of a session's query, in Spark's own workers.

    Args:
        spark: The session of one query.
        query: The name of the query.
        worker: The pickled worker code.
        timeout_ms: How long a function may take for one call.
        dead_letters: The topic for records on which a function fails; with None the query fails.
        always: Whether also in micro-batch.
    """
    python = jvm_of(spark).org.apache.spark.sql.execution.python.tailrace.RealTimePython
    letters = jvm_dead_letters(spark, dead_letters)
    return FunctionCosts(python.install(classic_of(spark), query, bytearray(worker), timeout_ms, letters, always))


def jvm_dead_letters(spark: SparkSession, topic: DeadLetterTopic | None) -> Any:
    """Return the engine's object for a topic of dead letters; None if there is no such topic."""
    if topic is None:
        return None
    return tailrace_of(spark).DeadLetters.of(topic.pipeline, topic.topic, dict(topic.producer))
