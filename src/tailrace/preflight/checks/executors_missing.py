"""Some executors of the cluster have not registered yet.

Problem:
    A query starts right after the context of a cluster. Tailrace counts the slots of the executors that have registered
    by then, and a stateless query that starts with too few slots never reads some partitions.

Do this instead:
    Set ``spark.scheduler.minRegisteredResourcesRatio=1.0``, or start the query when all executors are there.
"""

from collections.abc import Iterator

from tailrace.errors import counted
from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "EXECUTORS_MISSING"


def check(query: Query) -> Iterator[Finding]:
    """Compare the registered executors with the requested ones."""
    missing = query.capacity.executors_missing
    if query.realtime and missing:
        yield warning(
            CODE,
            f"{counted(missing, 'executor')} of the cluster did not register yet",
            why="only registered executors have slots, and running tasks do not move to later ones",
            fix="wait for them, or set spark.scheduler.minRegisteredResourcesRatio=1.0",
        )
