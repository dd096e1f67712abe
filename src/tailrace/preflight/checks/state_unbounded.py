"""State that grows for ever.

Anti-pattern:
    ``groupBy("card").count()`` or ``dropDuplicates(["id"])`` on a stream, with or without a watermark: every key that
    was ever seen stays in the state.

Best practice:
    A watermark and a window or the event time among the keys: ``.withWatermark("time", "10 minutes")`` and
    ``groupBy(F.window("time", "5 minutes"), "card")``. Without them only where the keys are few and known.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query, where

CODE = "STATE_UNBOUNDED"


def check(query: Query) -> Iterator[Finding]:
    """Whether there is state whose keys have no watermark."""
    for node in query.stateful:
        if node.bounded:
            continue
        what = "dropDuplicates" if "Deduplicate" in node.name else "the aggregate"
        yield warning(
            CODE,
            f"the state of {what} grows with every new key, for ever",
            why="nothing says when a key is done: none of its keys has a watermark",
            fix='.withWatermark("time", "10 minutes") before it, and the time, or a window of it, among the keys',
            where=where(node),
        )
        return
