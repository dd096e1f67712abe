"""Real time cannot write the sink.

Problem:
    ``foreachBatch``, files, ``memory`` or a table: they take whole batches.

Do this instead:
    Write to Kafka. Use ``console`` to look at rows, or ``foreach`` with a writer in the JVM.
"""

from collections.abc import Iterator

from tailrace.conditions.sinks import SINK_REFUSED
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query

CODE = SINK_REFUSED.code


def check(query: Query) -> Iterator[Finding]:
    """Report a sink that Spark refuses."""
    for refusal in query.refusals_of(SINK_REFUSED):
        sink = query.sink.format if query.sink is not None else refusal.parameters.get("className", "of the query")
        yield refused(query, SINK_REFUSED, sink=sink)
