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
LONG_MS = 60_000
"""From here on a pause of a second, which a million rows cost, is a sixtieth of the time at most."""


def check(query: Query) -> Iterator[Finding]:
    """Whether a table is broadcast."""
    if not query.realtime or query.interval_ms >= LONG_MS:
        return
    for node in query.operators("BroadcastExchange"):
        yield advice(
            CODE,
            f"the static table of this join is read again every {query.interval_ms / 1000:g} s",
            why="each real-time batch has a plan of its own, and records wait while the table is sent to its tasks",
            fix="--checkpoint-every 60s or longer; a small table, and table.persist()",
            where=where(node),
        )
        return
