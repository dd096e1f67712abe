"""Python functions of a query, planned so that rows flow, and what they cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine.gateway import classic_of, jvm_of


@dataclass(frozen=True)
class DeadLetterBox:
    """Where records go on which a function fails."""

    pipeline: str
    topic: str
    producer: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class FunctionCost:
    """What the calls of one Python function cost.

    Attributes:
        rows: The rows that it was called with.
        calls: How often; each call has what had arrived.
        most_rows: The most rows in one call.
        python_ms: The time in the function, by the row: conversions by Spark's worker included.
        waited_ms: How long a row waited for its call, on average.
        trip_ms: From the call to its answer, on average: the function and the way there and back.
        failed: The rows that it failed on.
        replaced: How often a worker was replaced.
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
        """How many rows a call had, on average."""
        return self.rows / self.calls if self.calls else 0.0


class FunctionCosts:
    """The costs of a running query's functions; metrics of Spark's, too, while they are watched."""

    def __init__(self, running: Any) -> None:
        self._running = running

    def watch(self) -> None:
        """Count from now on."""
        self._running.open()

    def are_loaded(self, query: StreamingQuery) -> bool:
        """Return whether workers have loaded the functions of a running query; a cluster does not say, so True."""
        execution = query._jsq.streamingQuery().lastExecution()
        return bool(self._running.areReady(execution.executedPlan()))

    def settle(self) -> None:
        """Wait until the counts of tasks that were stopped have arrived."""
        self._running.settle(2000)

    def close(self) -> None:
        """Watch no more."""
        self._running.close()

    def read(self) -> dict[str, FunctionCost]:
        """The cost of each function, by its name; what tasks that run tell of it comes every few seconds."""
        found = dict(self._running.value())
        return {str(name): _cost([int(number) for number in numbers]) for name, numbers in found.items()}


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


def carry_python(
    spark: SparkSession, query: str, half: bytes, *, limit_ms: int, dead_letters: DeadLetterBox | None, always: bool
) -> FunctionCosts:
    """Let queries of a session run Python functions on what has arrived, by Spark's own workers.

    Args:
        spark: The session of one query.
        query: Its name.
        half: The Python half of the engine, pickled.
        limit_ms: How long a function may take over what it was given.
        dead_letters: Where records go on which one fails; None means that the query ends.
        always: Whether also in micro-batch.
    """
    carried = jvm_of(spark).org.apache.spark.sql.execution.python.tailrace.RealTimePython
    box = None
    if dead_letters is not None:
        box = carried.deadLetters(dead_letters.pipeline, dead_letters.topic, dict(dead_letters.producer))
    return FunctionCosts(carried.install(classic_of(spark), query, bytearray(half), limit_ms, box, always))
