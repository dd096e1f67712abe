"""The batches of the query cannot end on request.

Problem:
    Tailrace ends a real-time batch early to stop exactly, to end a bounded run and to checkpoint on request. That needs
    versions of Spark and its Kafka connector that this release knows. With other versions Spark's own source reads the
    topics: a stop discards the work since the last checkpoint, in micro-batch that of the running batch, and the next
    start processes those records again. The same holds if ``spark.sql.streaming.disabledV2MicroBatchReaders`` names
    Kafka, and for a real-time query that reads another source besides Kafka. With such versions Spark's own sink
    also writes the results in real time, and one that Kafka refuses ends the query.

Do this instead:
    Use the versions that ``tailrace doctor`` shows, and unset that setting. A bounded run can also use micro-batch.
"""

from collections.abc import Iterator

from tailrace.plan.streams import StreamRead
from tailrace.preflight.finding import Finding, error, warning
from tailrace.preflight.query import Query

CODE = "BATCH_END_UNSUPPORTED"
_DISABLED = "spark.sql.streaming.disabledV2MicroBatchReaders"


def check(query: Query) -> Iterator[Finding]:
    """Refuse a bounded run, and warn about stops, if the source is Spark's own."""
    if not query.uncontrolled or not any(map(_is_kafka, query.reads)):
        return
    if query.realtime and query.bounded:
        yield error(
            CODE,
            "a run with once cannot end in real time",
            why=query.uncontrolled,
            fix=query.or_microbatch(_fix(query)),
        )
    else:
        yield warning(
            CODE,
            "a stop repeats " + ("the records since the last checkpoint" if query.realtime else "the running batch"),
            why=query.uncontrolled,
            fix=_fix(query),
        )


def _fix(query: Query) -> str:
    if _DISABLED in query.uncontrolled:
        return f"unset {_DISABLED}"
    if query.realtime and not all(map(_is_kafka, query.reads)):
        return "read only Kafka topics"
    return "use the versions that tailrace doctor shows"


def _is_kafka(read: StreamRead) -> bool:
    return "kafka" in read.format.lower()
