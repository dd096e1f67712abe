"""The query writes with ``foreach`` and a Python function.

Problem:
    ``.writeStream.foreach(f)`` in real time: Spark allows it, and sends rows to Python in blocks of 1 MB. Rows
    wait for seconds, at most until the end of the batch.

Do this instead:
    Write to a Kafka topic, and call ``f`` in an ordinary consumer.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "PYTHON_FOREACH"


def check(query: Query) -> Iterator[Finding]:
    """Look at the writer's format."""
    if query.realtime and query.sink is not None and query.sink.format == "foreach":
        yield warning(
            CODE,
            "foreach with a Python function holds rows back, for seconds or until the next checkpoint",
            why="Spark sends rows to Python in blocks of 1 MB, or when the batch ends",
            fix=query.or_microbatch("write to a Kafka topic and consume that"),
        )
