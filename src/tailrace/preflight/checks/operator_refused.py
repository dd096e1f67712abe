"""The query has an operation that real time does not run.

Problem:
    A join of two streams, a session window, ``applyInPandas``, ``limit`` or ``orderBy`` in a real-time query. Spark
    refuses them only after the start, and names its own classes.

Do this instead:
    Each finding has a rewrite. These all run in real time: projections, filters, ``explode``, Python functions on
    columns, ``mapInPandas``, ``mapInArrow``, unions of different sources, aggregates by key, time windows,
    ``dropDuplicates``, ``dropDuplicatesWithinWatermark`` and joins with a small static table.
"""

from collections.abc import Iterator

from tailrace.conditions.operators import OPERATOR_REFUSED, PYTHON_NODES, Operation, operation_of
from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = OPERATOR_REFUSED.code


def check(query: Query) -> Iterator[Finding]:
    """Report each refused operation once per line."""
    reported: set[tuple[str, str]] = set()
    for node in refused_operators(query):
        operation = operation_of(node.name)
        place = _place(node, operation, query)
        if (operation.name, place) not in reported:
            reported.add((operation.name, place))
            values = {"operation": operation.name, "operator": node.name, "rewrite": operation.rewrite}
            yield refused(query, OPERATOR_REFUSED, where=place, **values)


def refused_operators(query: Query) -> list[Operator]:
    """Return the operators that Spark refuses, without those that it adds for another refused one."""
    # Python functions have their own check.
    nodes = [node for node in query.operators() if node.refused and node.name not in PYTHON_NODES]
    parts = tuple(part for node in nodes for part in operation_of(node.name).parts)
    return [node for node in nodes if not node.implied and not node.name.startswith(parts)] or nodes


def _place(node: Operator, operation: Operation, query: Query) -> str:
    """Return the user's line. Spark's optimizer may move a node below another call's, so its own line can be wrong."""
    if node.call in operation.calls:
        return where(node)
    call = next((call for call in query.calls if call.call in operation.calls), None)
    return where(call or node)
