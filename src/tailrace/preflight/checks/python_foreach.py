"""``foreach`` with a Python function.

Anti-pattern:
    ``.writeStream.foreach(f)`` in real time: Spark allows it, and gathers rows until a megabyte is full. Rows wait for
    seconds, up to the end of the batch.

Best practice:
    Write to a Kafka topic, and let an ordinary consumer do what ``f`` does.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "PYTHON_FOREACH"


def check(query: Query) -> Iterator[Finding]:
    """Whether rows leave through Python."""
    if query.realtime and query.sink is not None and query.sink.format == "foreach":
        yield warning(
            CODE,
            "foreach with a Python function holds rows back, for seconds or until the next checkpoint",
            why="Spark sends them to Python only when a megabyte has gathered or the batch ends",
            fix=query.or_microbatch("write to a Kafka topic and consume that"),
        )
