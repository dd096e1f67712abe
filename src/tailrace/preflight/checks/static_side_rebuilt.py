"""A static table that is read again at every checkpoint.

Anti-pattern:
    A join with a table of a million rows and ``--checkpoint-every 5s``: at every checkpoint the table is collected and
    sent to the tasks again, and no record flows meanwhile (measured with a million rows: a second).

Best practice:
    A small table, a long checkpoint interval, and ``table.persist()``, which spares the reading of it.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query, where

CODE = "STATIC_SIDE_REBUILT"


def check(query: Query) -> Iterator[Finding]:
    """Whether a table is broadcast."""
    if not query.realtime:
        return
    for node in query.operators("BroadcastExchange"):
        yield advice(
            CODE,
            f"the static table of this join is read again every {query.interval_ms / 1000:g} s",
            why="each real-time batch has a plan of its own, and records wait while the table is sent to its tasks",
            fix="a small table, table.persist(), and a long --checkpoint-every",
            where=where(node),
        )
        return
