"""A union has one source on both sides.

Problem:
    ``events.where("a").union(events.where("b"))``: both sides are one read of one source.

Do this instead:
    Produce the rows in one pass with ``explode`` or ``when``; or read the topic twice, with two ``readStream`` or two
    ``KafkaSource``.
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
