"""A source that real time cannot follow.

Anti-pattern:
    ``spark.readStream.format("rate")`` or a folder of files in real time.

Best practice:
    Kafka. For a test, ``tailrace.testing`` puts rows into a topic of its own.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "SOURCE_REFUSED"


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of the sources."""
    for refusal in query.refused("STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED"):
        name = refusal.parameters.get("className", "").rpartition(".")[2]
        yield error(
            CODE,
            f"the source {name} cannot be read in real time",
            why="Spark follows only sources that can be read record by record; of its own that is Kafka",
            fix=query.or_microbatch("bring the records into a Kafka topic"),
            where=where(refusal),
        )
