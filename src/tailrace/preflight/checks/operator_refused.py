"""An operation that real time cannot do.

Anti-pattern:
    A join of two streams, a session window, ``mapInPandas``, ``limit`` or ``orderBy`` in a real-time query. Spark
    refuses them only after the query has started, by the names of its own classes.

Best practice:
    What works in its place is in the finding. Projections, filters, ``explode``, unions of different sources, keyed
    aggregates, time windows, ``dropDuplicates`` and joins with a small static table all run in real time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.engine import Operator
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "OPERATOR_REFUSED"


@dataclass(frozen=True)
class Family:
    """Operators that a user knows by one name."""

    words: str
    instead: str


_MICRO = "or run with --mode microbatch"
FAMILIES: dict[str, Family] = {
    "StreamingSymmetricHashJoin": Family(
        "a join of two streams",
        "read both topics in one pipeline, bring them to one shape, union them and aggregate by the key",
    ),
    "SessionWindow": Family("a session window", "a window of fixed length: F.window(time, '5 minutes')"),
    "MergingSessions": Family("a session window", "a window of fixed length: F.window(time, '5 minutes')"),
    "UpdatingSessions": Family("a session window", "a window of fixed length: F.window(time, '5 minutes')"),
    "MapInPandas": Family("mapInPandas", "built-in functions on the columns"),
    "MapInArrow": Family("mapInArrow", "built-in functions on the columns"),
    "PythonMapInArrow": Family("mapInArrow", "built-in functions on the columns"),
    "BatchEvalPythonUDTF": Family("a Python table function", "explode on an array column"),
    "ArrowEvalPythonUDTF": Family("a Python table function", "explode on an array column"),
    "StreamingGlobalLimit": Family("limit", "a condition that picks the rows: where(...)"),
    "StreamingLocalLimit": Family("limit", "a condition that picks the rows: where(...)"),
    "GlobalLimit": Family("limit", "a condition that picks the rows: where(...)"),
    "LocalLimit": Family("limit", "a condition that picks the rows: where(...)"),
    "CollectLimit": Family("limit", "a condition that picks the rows: where(...)"),
    "Sort": Family("a sort", "sort where the results are read: rows leave as they come"),
    "TakeOrderedAndProject": Family("a sort with a limit", "an aggregate with max_by or min_by"),
    "StreamingDeduplicateWithinWatermark": Family("dropDuplicatesWithinWatermark", "dropDuplicates by the key"),
    "FlatMapGroupsInPandasWithState": Family("applyInPandasWithState", "groupBy with built-in aggregates"),
    "FlatMapGroupsWithState": Family("flatMapGroupsWithState", "groupBy with built-in aggregates"),
    "TransformWithStateInPySpark": Family("transformWithState in Python", "groupBy with built-in aggregates"),
    "FlatMapGroupsInPandas": Family("applyInPandas", "groupBy with built-in aggregates"),
    "FlatMapGroupsInArrow": Family("applyInArrow", "groupBy with built-in aggregates"),
    "FlatMapCoGroupsInPandas": Family("cogroup", "a union of both sides and an aggregate by the key"),
    "AggregateInPandas": Family("a pandas aggregate function", "built-in aggregates"),
    "ArrowAggregatePython": Family("an Arrow aggregate function", "built-in aggregates"),
    "Window": Family("a function over a window of rows", "an aggregate by key, or by F.window(time, ...)"),
    "SortMergeJoin": Family("a join with a large static table", "F.broadcast(table), where the table fits into memory"),
    "ShuffledHashJoin": Family(
        "a join with a large static table", "F.broadcast(table), where the table fits into memory"
    ),
    "BroadcastNestedLoopJoin": Family("a join without an equal key", "a join on equal keys and a condition after it"),
    "CartesianProduct": Family("a join without a key", "a join on equal keys"),
    "Coalesce": Family("coalesce", "as many tasks as the topic has partitions: leave it away"),
    "Sample": Family("sample", "a condition on a hash of the key: where('abs(hash(key)) % 100 < 5')"),
    "Exchange": Family("a repartition by ranges", "repartition by a key: repartition('key')"),
    "HashAggregate": Family("an aggregate of this kind", "built-in aggregates by a key"),
    "ObjectHashAggregate": Family("an aggregate of this kind", "built-in aggregates by a key"),
    "SortAggregate": Family("an aggregate of this kind", "built-in aggregates by a key"),
}
"""By the beginning of the plan node's name: what a user calls it, and the nearest thing that works."""
PYTHON_NODES = ("BatchEvalPython", "ArrowEvalPython")
"""These have a check of their own."""


def check(query: Query) -> Iterator[Finding]:
    """What Spark says of the operators in the plan."""
    told: set[tuple[str, str]] = set()
    for node in query.operators():
        if not node.refused or _is_python(node):
            continue
        family = family_of(node.name)
        if (family.words, node.line) not in told:
            told.add((family.words, node.line))
            yield error(
                CODE,
                f"{family.words} cannot run in real time",
                why=f"Spark refuses its operator {node.name} in this mode",
                fix=f"{family.instead}; {_MICRO}",
                where=where(node),
            )


def family_of(name: str) -> Family:
    """What a user calls an operator; the longest beginning that is known, else its own name."""
    known = [prefix for prefix in FAMILIES if name.startswith(prefix)]
    return FAMILIES[max(known, key=len)] if known else Family(f"the operation {name}", "another way to the same rows")


def _is_python(node: Operator) -> bool:
    return node.name in PYTHON_NODES
