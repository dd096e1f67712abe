"""Tailrace cannot count the tasks.

Problem:
    The source has a topic pattern, and only Spark can reach the broker, for example with a Java keystore. Tailrace
    cannot know the number of tasks before the start, and with too few slots Spark never reads some partitions.

Do this instead:
    Name the topics; or check yourself that there are as many slots as partitions and shuffle tasks.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SLOTS_UNKNOWN"


def check(query: Query) -> Iterator[Finding]:
    """Look for a plan without a number of tasks."""
    if query.realtime and query.plan is not None and query.slots is None:
        yield warning(
            CODE,
            "the tasks of this query could not be counted",
            why="the broker did not report how many partitions its topics have",
            fix="name the topics, and check that the broker responds: each partition and shuffle task needs a slot",
        )
