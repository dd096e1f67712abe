"""A shuffle has many more tasks than the source.

Problem:
    ``spark.sql.shuffle.partitions=200``, Spark's own default, in real time: 200 tasks for a topic of 4 partitions, each
    with its own slot and a connection to every task before it.

Do this instead:
    Use the number of tasks that read the source. Tailrace does if you set nothing.
"""

from collections.abc import Iterator

from tailrace.conditions.checkpoints import WITH_FRESH_CHECKPOINT
from tailrace.errors import counted
from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query
from tailrace.tuning import SHUFFLE_PARTITIONS

CODE = "SHUFFLE_PARTITIONS_MANY"
_TIMES = 4
"""Up to this many times the source's tasks, there is no finding."""


def check(query: Query) -> Iterator[Finding]:
    """Compare the tasks after a shuffle with those that read the sources."""
    if not query.realtime or query.slots is None or not query.shuffles:
        return
    source, most = query.slots.stages[0], max(query.slots.stages[1:])
    if most > _TIMES * max(source, 1):
        yield warning(
            CODE,
            f"{most} tasks read a shuffle after {counted(source, 'source task')}",
            why="each task holds a slot, and a connection to every task before it, as long as the query runs",
            fix=_fix(query, source),
        )


def _fix(query: Query, source: int) -> str:
    pinned = query.saved is not None and query.saved.shuffle_partitions is not None
    fewer = f"use --shuffle-partitions {source}, or unset {SHUFFLE_PARTITIONS}"
    return f"{fewer}, {WITH_FRESH_CHECKPOINT}" if pinned else fewer
