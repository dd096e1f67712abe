"""Executors that were asked for and are not there yet.

Anti-pattern:
    Starting a query right after the context of a cluster: slots are counted on the executors that have registered by
    then, and a stateless query that starts with too few reads only some partitions, for ever.

Best practice:
    ``spark.scheduler.minRegisteredResourcesRatio=1.0``, or start when the executors are there.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "EXECUTORS_MISSING"


def check(query: Query) -> Iterator[Finding]:
    """Compare the executors that are there with those that were asked for."""
    missing = query.capacity.executors_missing
    if query.realtime and missing:
        yield warning(
            CODE,
            f"{missing} executors that were asked for have not registered yet",
            why="slots are counted on those that have; tasks do not move to others later",
            fix="wait for them, or set spark.scheduler.minRegisteredResourcesRatio=1.0",
        )
