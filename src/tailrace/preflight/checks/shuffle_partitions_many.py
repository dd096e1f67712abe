"""Many more tasks after a shuffle than before it.

Anti-pattern:
    ``spark.sql.shuffle.partitions=200`` (Spark's own default) in real time: 200 tasks, each with a slot of its own and
    a connection to every task before it, for a topic of 4 partitions.

Best practice:
    As many as the source has partitions, which is what Tailrace takes where nobody chose.
"""

from collections.abc import Iterator

from tailrace.errors import counted
from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query
from tailrace.tuning import SHUFFLE_PARTITIONS

CODE = "SHUFFLE_PARTITIONS_MANY"
_TIMES = 4
"""How many times the source's partitions are still nothing to speak of."""


def check(query: Query) -> Iterator[Finding]:
    """Compare the tasks after a shuffle with the partitions of the source."""
    if not query.realtime or query.slots is None or not query.shuffles:
        return
    source, most = query.slots.stages[0], max(query.slots.stages[1:])
    if most > _TIMES * max(source, 1):
        yield warning(
            CODE,
            f"{most} tasks read each shuffle of a source with {counted(source, 'partition')}",
            why="each task holds a slot and a connection to every task before it for as long as the query runs",
            fix=_fix(query, source),
        )


def _fix(query: Query, source: int) -> str:
    pinned = query.saved is not None and query.saved.shuffle_partitions is not None
    fewer = f"--shuffle-partitions {source}, or leave {SHUFFLE_PARTITIONS} unset"
    return f"{fewer}, with a fresh checkpoint: --checkpoint DIR" if pinned else fewer
