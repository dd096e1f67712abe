"""The state grows for ever.

Problem:
    ``groupBy("card").count()`` or ``dropDuplicates(["id"])`` on a stream, with or without a watermark: every key stays
    in the state. In micro-batch, a join of two streams without a time range: every record stays.

Do this instead:
    Use a watermark, and a window or the event time among the keys: ``.withWatermark("time", "10 minutes")`` and
    ``groupBy(F.window("time", "5 minutes"), "card")``. Leave them out only if there are few keys. For a join, use
    watermarks on both sides and a time range in the condition.
"""

from collections.abc import Iterator

from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.query import Query, where

CODE = "STATE_UNBOUNDED"
_JOIN = "StreamingSymmetricHashJoin"


def check(query: Query) -> Iterator[Finding]:
    """Look for state that no watermark removes."""
    # A refused operator keeps no state: it has an error already.
    unbounded = [node for node in query.stateful if not node.bounded and not node.refused]
    if not unbounded:
        return
    node = unbounded[0]
    yield _join(node) if node.name.startswith(_JOIN) else _keys(node)


def _keys(node: Operator) -> Finding:
    operation = "dropDuplicates" if "Deduplicate" in node.name else "the aggregate"
    return warning(
        CODE,
        f"the state of {operation} grows with every new key, for ever",
        why="none of its keys has a watermark, so Spark never knows when a key is done",
        fix='add .withWatermark("time", "10 minutes") before it, and the time, or a window of it, to the keys',
        where=where(node),
    )


def _join(node: Operator) -> Finding:
    return warning(
        CODE,
        "the state of the join of two streams grows with every record, for ever",
        why="without watermarks and a time range, Spark never knows when a record can no longer match",
        fix=(
            'add .withWatermark("time", "10 minutes") to both sides, and a time range to the condition: '
            "right.time between left.time and left.time + interval 1 hour"
        ),
        where=where(node),
    )
