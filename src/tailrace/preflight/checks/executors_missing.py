"""Some executors of the cluster have not registered yet.

Problem:
    Tailrace counts the slots of the executors that have registered. If these are too few, it waits up to 30 s for the
    first executor and up to 5 s for each further one. Running tasks do not move to executors that register later.

Do this instead:
    Set ``spark.scheduler.minRegisteredResourcesRatio=1.0``, or start the query when all executors have registered.
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
