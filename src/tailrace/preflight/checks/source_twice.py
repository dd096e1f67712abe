"""One source on both sides of a union.

Anti-pattern:
    ``events.where("a").union(events.where("b"))``: both sides are one read of one source.

Best practice:
    One pass with ``explode`` or ``when``; or read the topic twice, with two ``readStream`` or two ``KafkaSource``.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "SOURCE_TWICE"


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of a source that is used twice."""
    for refusal in query.refused("STREAMING_REAL_TIME_MODE.IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED"):
        yield error(
            CODE,
            "a union of one source with itself cannot run in real time",
            why="both sides are the same read, which real time can follow only once",
            fix="make the rows in one pass (explode, when), or read the topic twice: two KafkaSource, two readStream",
            where=where(refusal),
        )
