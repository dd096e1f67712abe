"""Append or complete mode in real time.

Anti-pattern:
    ``.outputMode("append")`` on an aggregate: a result would be final only when its window has closed.

Best practice:
    ``.outputMode("update")``: each changed result is written at once. A ``tr.Pipeline`` always is in update mode.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "OUTPUT_MODE_REFUSED"


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of the output mode."""
    for refusal in query.refused("STREAMING_REAL_TIME_MODE.OUTPUT_MODE_NOT_SUPPORTED"):
        given = refusal.parameters.get("outputMode", "this")
        yield error(
            CODE,
            f"real time has only update mode, not {given.lower()}",
            why="it writes each changed result at once instead of final or complete ones",
            fix='.outputMode("update") on the writer',
        )
