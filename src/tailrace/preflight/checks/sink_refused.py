"""A sink that real time cannot write.

Anti-pattern:
    ``foreachBatch``, files, ``memory`` or a table: they take whole batches.

Best practice:
    Kafka; ``console`` to look at rows; ``foreach`` with a writer of the JVM's.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "SINK_REFUSED"
_LISTED = "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST"
_WHOLE_BATCHES = "STREAMING_REAL_TIME_MODE.SINK_NOT_SUPPORTED"


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of the sink."""
    name = query.sink.format if query.sink is not None else "this sink"
    for condition in (_LISTED, _WHOLE_BATCHES):
        for _ in query.refused(condition):
            yield error(
                CODE,
                f"the sink {name!r} cannot be written in real time",
                why="it takes whole batches, and in real time rows leave one by one",
                fix=query.or_microbatch('write to Kafka (.format("kafka"))'),
            )
