"""The query is not in update mode.

Problem:
    ``.outputMode("append")`` on an aggregate: a result would be final only when its window has closed.

Do this instead:
    Use ``.outputMode("update")``: real time writes each result as it changes. A ``tr.Pipeline`` is always in update
    mode.
"""

from collections.abc import Iterator

from tailrace.conditions.sinks import OUTPUT_MODE_REFUSED
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query

CODE = OUTPUT_MODE_REFUSED.code


def check(query: Query) -> Iterator[Finding]:
    """Report an output mode that Spark refuses."""
    for refusal in query.refusals_of(OUTPUT_MODE_REFUSED):
        yield refused(query, OUTPUT_MODE_REFUSED, **refusal.parameters)
