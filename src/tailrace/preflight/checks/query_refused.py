"""Something that no streaming query of Spark's can do, in either mode.

Anti-pattern:
    ``orderBy`` on a stream, an aggregate after another in update mode, an outer join of streams without a watermark.

Best practice:
    Spark's own sentence says what is missing; it is the same in micro-batch.
"""

from collections.abc import Iterator

from tailrace.preflight.checks import operator_refused
from tailrace.preflight.checks.source_option_refused import is_option
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "QUERY_REFUSED"
_OTHERS = ("STREAMING_REAL_TIME_MODE.", "TAILRACE_")


def check(query: Query) -> Iterator[Finding]:
    """What Spark's analyser says, other than about real time."""
    told = {finding.where for finding in operator_refused.check(query)}
    for refusal in query.refusals:
        if refusal.condition.startswith(_OTHERS) or is_option(refusal):
            continue
        if refusal.line and where(refusal) in told:
            continue  # said there, with what works instead
        sentence = refusal.message.strip().splitlines()[0].partition(";")[0]
        yield error(
            CODE,
            f"Spark refuses the query: {sentence}",
            why=f"its rule {refusal.condition}" if refusal.condition else "its analyser does not accept it",
            fix="change the operation that the sentence names",
            where=where(refusal),
        )
