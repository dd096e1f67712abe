"""An operation that real time cannot do.

Anti-pattern:
    A join of two streams, a session window, ``applyInPandas``, ``limit`` or ``orderBy`` in a real-time query. Spark
    refuses them only after the query has started, by the names of its own classes.

Best practice:
    What works in its place is in the finding. Projections, filters, ``explode``, Python functions on columns,
    ``mapInPandas``, ``mapInArrow``, unions of different sources, keyed aggregates, time windows, ``dropDuplicates`` and
    joins with a small static table all run in real time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import PYTHON_NODES, Query, where

CODE = "OPERATOR_REFUSED"


@dataclass(frozen=True)
class Family:
    """Operators that a user knows by one name."""

    words: str
    instead: str
    calls: tuple[str, ...] = ()
    """The DataFrame methods that make them."""
    parts: tuple[str, ...] = ()
    """Operators with names of their own that Spark plans for the same call."""


_JOIN = ("join", "crossJoin")
_AGGREGATES = ("HashAggregate", "ObjectHashAggregate", "SortAggregate")
_SESSIONS = Family("a session window", "a window of fixed length: F.window('time', '5 minutes')", parts=_AGGREGATES)
_OVER = Family(
    "a window function (over)",
    "an aggregate by the key: F.sum('amount') for a total, F.max_by(F.struct('*'), 'time') for the newest row",
)
_CONSTANT_KEY = (
    "join on an expression that is equal in all rows (Spark refuses a literal): "
    "join(F.broadcast(table), (F.hash(events.id) % 1 == F.hash(table.low) % 1) & (events.id >= table.low), 'left')"
)
_LIMIT = Family("limit", "a condition that picks the rows: where(...)", ("limit",))
_LARGE = Family("a join with a large static table", "F.broadcast(table), where the table fits into memory", _JOIN)
_TABLE_FUNCTION = Family("a Python table function", "a function that returns an array, and explode on it")
_ALONE = "the same call without barrier= and profile="
_PANDAS = Family("mapInPandas with a barrier or a profile", _ALONE, ("mapInPandas",))
_ARROW = Family("mapInArrow with a barrier or a profile", _ALONE, ("mapInArrow",))
_AGGREGATE = Family("an aggregate of this kind", "built-in aggregates by a key")
_BY_GROUP = "groupBy with built-in aggregates"
FAMILIES: dict[str, Family] = {
    "StreamingSymmetricHashJoin": Family(
        "a join of two streams",
        "read both topics in one pipeline, bring them to one shape, union them and aggregate by the key",
        _JOIN,
    ),
    "SessionWindow": _SESSIONS,
    "MergingSessions": _SESSIONS,
    "UpdatingSessions": _SESSIONS,
    "MapInPandas": _PANDAS,
    "MapInArrow": _ARROW,
    "PythonMapInArrow": _ARROW,
    "BatchEvalPythonUDTF": _TABLE_FUNCTION,
    "ArrowEvalPythonUDTF": _TABLE_FUNCTION,
    "StreamingGlobalLimit": _LIMIT,
    "StreamingLocalLimit": _LIMIT,
    "GlobalLimit": _LIMIT,
    "LocalLimit": _LIMIT,
    "CollectLimit": _LIMIT,
    "Sort": Family("a sort", "sort where the results are read: rows leave as they come", ("sort", "orderBy")),
    "TakeOrderedAndProject": Family("a sort with a limit", "an aggregate with max_by or min_by", ("limit",)),
    "StreamingDeduplicateWithinWatermark": Family(
        "dropDuplicatesWithinWatermark",
        "dropDuplicates by the key and the watermarked time",
        ("dropDuplicatesWithinWatermark",),
    ),
    "FlatMapGroupsInPandasWithState": Family("applyInPandasWithState", _BY_GROUP, ("applyInPandasWithState",)),
    "FlatMapGroupsWithState": Family("flatMapGroupsWithState", _BY_GROUP),
    "TransformWithStateInPySpark": Family(
        "transformWithState in Python", _BY_GROUP, ("transformWithState", "transformWithStateInPandas")
    ),
    "FlatMapGroupsInPandas": Family("applyInPandas", _BY_GROUP, ("applyInPandas",)),
    "FlatMapGroupsInArrow": Family("applyInArrow", _BY_GROUP, ("applyInArrow",)),
    "FlatMapCoGroupsInPandas": Family("cogroup", "a union of both sides and an aggregate by the key"),
    "AggregateInPandas": Family("a pandas aggregate function", "built-in aggregates"),
    "ArrowAggregatePython": Family("an Arrow aggregate function", "built-in aggregates"),
    "Window": _OVER,
    "ArrowWindowPython": _OVER,
    "SortMergeJoin": _LARGE,
    "ShuffledHashJoin": _LARGE,
    "BroadcastNestedLoopJoin": Family("a join without an equal key", _CONSTANT_KEY, _JOIN),
    "CartesianProduct": Family("a join without an equal key", _CONSTANT_KEY, _JOIN),
    "Coalesce": Family("coalesce", "remove it: each partition of the topic has a task of its own", ("coalesce",)),
    "Sample": Family("sample", "a condition on a hash of the key: where('abs(hash(key)) % 100 < 5')", ("sample",)),
    "Exchange": Family("a repartition by ranges", "repartition by a key: repartition('key')", ("repartitionByRange",)),
    **dict.fromkeys(_AGGREGATES, _AGGREGATE),
}
"""By the beginning of the plan node's name: what a user calls it, and the nearest thing that works."""


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of the operators in the plan."""
    told: set[tuple[str, str]] = set()
    for node in refused_operators(query):
        family = family_of(node.name)
        place = _place(node, family, query)
        if (family.words, place) not in told:
            told.add((family.words, place))
            yield error(
                CODE,
                f"{family.words} cannot run in real time",
                why=f"Spark refuses its operator {node.name} in this mode",
                fix=query.or_microbatch(family.instead),
                where=place,
            )


def refused_operators(query: Query) -> list[Operator]:
    """The operators that Spark refuses, without those that it added for another one of them."""
    # Python functions have a check of their own.
    nodes = [node for node in query.operators() if node.refused and node.name not in PYTHON_NODES]
    parts = tuple(part for node in nodes for part in family_of(node.name).parts)
    return [node for node in nodes if not node.implied and not node.name.startswith(parts)] or nodes


def _place(node: Operator, family: Family, query: Query) -> str:
    """The user's line: of the node itself, unless Spark's optimizer has moved it below another call's."""
    if node.call in family.calls:
        return where(node)
    made = next((call for call in query.calls if call.call in family.calls), None)
    return where(made or node)


def family_of(name: str) -> Family:
    """What a user calls an operator; the longest beginning that is known, else its own name."""
    known = [prefix for prefix in FAMILIES if name.startswith(prefix)]
    return FAMILIES[max(known, key=len)] if known else Family(f"the operation {name}", "another way to the same rows")
