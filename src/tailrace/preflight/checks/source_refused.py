"""Real time cannot read the source.

Problem:
    ``spark.readStream.format("rate")`` or a folder of files in real time.

Do this instead:
    Read from Kafka. For a test, ``tailrace.testing`` writes rows to its own topic.
"""

from collections.abc import Iterator

from tailrace.conditions.sources import SOURCE_REFUSED
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = SOURCE_REFUSED.code


def check(query: Query) -> Iterator[Finding]:
    """Report each source that Spark refuses."""
    for refusal in query.refusals_of(SOURCE_REFUSED):
        source = refusal.parameters.get("className", "").rpartition(".")[2]
        yield refused(query, SOURCE_REFUSED, where=where(refusal), source=source)
