"""A static table is read again at every checkpoint.

Problem:
    A join with a table of a million rows and ``--checkpoint-every 5s``: at every checkpoint Spark collects the table
    and sends it to the tasks again, and no record flows meanwhile (measured with a million rows: a second).

Do this instead:
    Use a small table, a long checkpoint interval, and ``table.persist()``, which avoids reading it again.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query, where

CODE = "STATIC_SIDE_REBUILT"
LONG_MS = 60_000
"""From this interval on, the second that a million rows cost is at most a sixtieth of the time."""


def check(query: Query) -> Iterator[Finding]:
    """Look for a broadcast and a short interval."""
    if not query.realtime or query.interval_ms >= LONG_MS:
        return
    for node in query.operators("BroadcastExchange"):
        yield advice(
            CODE,
            f"the static table of this join is read again every {query.interval_ms / 1000:g} s",
            why="each real-time batch has its own plan, and records wait while Spark sends the table to the tasks",
            fix="use --checkpoint-every 60s or longer, a small table, and table.persist()",
            where=where(node),
        )
        return
