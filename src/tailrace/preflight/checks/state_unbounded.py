"""State that grows for ever.

Anti-pattern:
    ``groupBy("card").count()`` or ``dropDuplicates(["id"])`` on a stream without a watermark: every key that was ever
    seen stays in the state.

Best practice:
    A watermark and a window or the event time among the keys: ``.withWatermark("time", "10 minutes")`` and
    ``groupBy(F.window("time", "5 minutes"), "card")``. Without them only where the keys are few and known.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query, where

CODE = "STATE_UNBOUNDED"
STATEFUL = ("StatefulStreamlineAggregate", "StateStoreSave", "StreamingDeduplicate")


def check(query: Query) -> Iterator[Finding]:
    """Whether there is state without a watermark."""
    if next(query.operators("EventTimeWatermark"), None) is not None:
        return
    for node in query.operators(*STATEFUL):
        what = "dropDuplicates" if "Deduplicate" in node.name else "the aggregate"
        yield warning(
            CODE,
            f"the state of {what} grows with every new key, for ever",
            why="without a watermark nothing says when a key is done",
            fix='.withWatermark("time", "10 minutes") before it, and the time among the keys',
            where=where(node),
        )
        return
