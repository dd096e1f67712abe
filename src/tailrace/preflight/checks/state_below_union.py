"""State below a union.

Anti-pattern:
    ``a.groupBy(...).count().union(b)``: Spark cannot plan an aggregate or a deduplication below a union in real time.

Best practice:
    Union first, then aggregate; or two pipelines that write to one topic.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "STATE_BELOW_UNION"


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of unions."""
    for refusal in query.refused("STREAMING_REAL_TIME_MODE.STATEFUL_OPERATORS_BEFORE_UNION_NOT_SUPPORTED"):
        yield error(
            CODE,
            "an aggregate or a deduplication below a union cannot run in real time",
            why="Spark does not plan state below a union in this mode",
            fix="union first and aggregate afterwards, or write both branches to one topic with two pipelines",
            where=where(refusal),
        )
