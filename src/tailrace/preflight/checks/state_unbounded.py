"""State that grows forever.

Anti-pattern:
    ``groupBy("card").count()`` or ``dropDuplicates(["id"])`` on a stream, with or without a watermark: every key that
    was ever seen stays in the state. In micro-batch, a join of two streams without a time range: every record stays.

Best practice:
    A watermark and a window or the event time among the keys: ``.withWatermark("time", "10 minutes")`` and
    ``groupBy(F.window("time", "5 minutes"), "card")``. Without them only where the keys are few and known. For a join,
    watermarks on both sides and a time range in its condition.
"""

from collections.abc import Iterator

from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query, where

CODE = "STATE_UNBOUNDED"
_JOIN = "StreamingSymmetricHashJoin"


def check(query: Query) -> Iterator[Finding]:
    """Whether there is state that no watermark removes."""
    # What is refused keeps no state: it has an error, and is looked at again in the mode that runs it.
    unbounded = [node for node in query.stateful if not node.bounded and not node.refused]
    if not unbounded:
        return
    node = unbounded[0]
    yield _join(node) if node.name.startswith(_JOIN) else _keys(node)


def _keys(node: Operator) -> Finding:
    what = "dropDuplicates" if "Deduplicate" in node.name else "the aggregate"
    return warning(
        CODE,
        f"the state of {what} grows with every new key, forever",
        why="nothing says when a key is done: none of its keys has a watermark",
        fix='.withWatermark("time", "10 minutes") before it, and the time, or a window of it, among the keys',
        where=where(node),
    )


def _join(node: Operator) -> Finding:
    return warning(
        CODE,
        "the state of the join of two streams grows with every record, forever",
        why="without watermarks and a time range, Spark cannot tell when a record can no longer match",
        fix=(
            '.withWatermark("time", "10 minutes") on both sides, and a time range in the condition: '
            "right.time between left.time and left.time + interval 1 hour"
        ),
        where=where(node),
    )
