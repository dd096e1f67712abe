"""The batches of the query cannot end on request.

Problem:
    Tailrace ends a real-time batch early to stop exactly, to end a bounded run and to checkpoint on request. That needs
    versions of Spark and its Kafka connector that this release knows. With other versions Spark's own source reads the
    topics: a stop discards the work since the last checkpoint, in micro-batch that of the running batch, and the next
    start processes those records again. In real time Spark's own sink then writes the results, and one that Kafka
    refuses ends the query.

Do this instead:
    Use the versions that ``tailrace doctor`` shows. A bounded run can also use micro-batch.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error, warning
from tailrace.preflight.query import Query

CODE = "BATCH_END_UNSUPPORTED"
_FIX = "use the versions that tailrace doctor shows"


def check(query: Query) -> Iterator[Finding]:
    """Refuse a bounded run, and warn about stops, if the source is Spark's own."""
    reads_kafka = any("kafka" in read.format.lower() for read in query.reads)
    if not query.uncontrolled or not reads_kafka:
        return
    if query.realtime and query.bounded:
        yield error(
            CODE,
            "a run with once cannot end in real time",
            why=query.uncontrolled,
            fix=query.or_microbatch(_FIX),
        )
    else:
        yield warning(
            CODE,
            "a stop repeats " + ("the records since the last checkpoint" if query.realtime else "the running batch"),
            why=query.uncontrolled,
            fix=_FIX,
        )
