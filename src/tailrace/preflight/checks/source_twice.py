"""A union has one source on both sides.

Problem:
    ``events.where("a").union(events.where("b"))`` in your own query: both sides are one read of one source, whose
    checkpoint Spark would continue only as one read. In the function of a pipeline each use is a read of its own.

Do this instead:
    Read the topic twice, with two ``readStream``; or produce the rows in one pass with ``explode`` or ``when``.
"""

from collections.abc import Iterator

from tailrace.conditions.sources import SOURCE_TWICE
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = SOURCE_TWICE.code


def check(query: Query) -> Iterator[Finding]:
    """Report a source that a union uses twice."""
    for refusal in query.refusals_of(SOURCE_TWICE):
        yield refused(query, SOURCE_TWICE, where=where(refusal))
