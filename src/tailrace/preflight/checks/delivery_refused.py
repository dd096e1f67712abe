"""The query cannot deliver effectively-once.

Problem:
    ``--delivery effectively-once`` for a query whose outputs cannot be compared with those that a run before a crash
    has written: an aggregate, a shuffle or another operation without a single source record per row; a filter on
    ``rand()`` or the current time; ``lineage=False``; a ``DataStreamWriter``; a compacted output topic, or one that the
    user may not read.

Do this instead:
    Follow the finding's fix, or leave ``--delivery`` out: the query then runs with at-least-once delivery, and
    consumers recognise a repeated result by its headers, or keep the last one of each key.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "DELIVERY_REFUSED"


def check(query: Query) -> Iterator[Finding]:
    """Refuse the guarantee that was asked for if the query cannot give it."""
    plan = query.delivery
    if query.wants_effectively_once and plan is not None and not plan.effectively_once:
        yield error(
            CODE,
            "the query cannot deliver effectively-once",
            why=plan.reason,
            fix=f"{plan.fix}; or --delivery at-least-once" if plan.fix else "--delivery at-least-once",
            where=plan.where,
        )
