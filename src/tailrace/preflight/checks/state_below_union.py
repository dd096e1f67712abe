"""A union has an aggregate or a deduplication below it.

Problem:
    ``a.groupBy(...).count().union(b)``: Spark cannot plan an aggregate or a deduplication below a union in real time.

Do this instead:
    Union first, then aggregate; or write to one topic with two pipelines.
"""

from collections.abc import Iterator

from tailrace.conditions.operators import STATE_BELOW_UNION
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = STATE_BELOW_UNION.code


def check(query: Query) -> Iterator[Finding]:
    """Report state below a union."""
    for refusal in query.refusals_of(STATE_BELOW_UNION):
        yield refused(query, STATE_BELOW_UNION, where=where(refusal))
