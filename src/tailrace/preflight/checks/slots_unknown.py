"""Tasks that could not be counted.

Anti-pattern:
    A pattern of topics at a broker that only Spark can reach, as behind a Java key store: nobody can say before the
    start how many tasks there will be, and with too few slots some partitions would never be read.

Best practice:
    Name the topics; or see for yourself that there are as many slots as partitions and shuffle tasks.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query

CODE = "SLOTS_UNKNOWN"


def check(query: Query) -> Iterator[Finding]:
    """Whether there is a plan, and no sum."""
    if query.realtime and query.plan is not None and query.slots is None:
        yield warning(
            CODE,
            "the tasks of this query could not be counted",
            why="the broker was not asked, or did not tell, how many partitions its topics have",
            fix="name the topics, and see that the broker answers; each partition and each shuffle task takes a slot",
        )
