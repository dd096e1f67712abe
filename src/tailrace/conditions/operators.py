"""Operations that real time does not run, and what to write instead."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.conditions.condition import Condition
from tailrace.errors import QueryRefused

PYTHON_NODES = ("BatchEvalPython", "ArrowEvalPython")
"""Spark's own operators for Python functions on columns."""


@dataclass(frozen=True)
class Operation:
    """What a user calls some operators of Spark's plan.

    Attributes:
        name: The user's name for it.
        rewrite: The nearest thing that runs, as an imperative.
        calls: The DataFrame methods that add it to the plan.
        parts: Other operators that Spark plans for the same call.
    """

    name: str
    rewrite: str
    calls: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


_JOIN = ("join", "crossJoin")
_AGGREGATES = ("HashAggregate", "ObjectHashAggregate", "SortAggregate")
_SESSION_WINDOW = Operation(
    "a session window", "use a window of fixed length: F.window('time', '5 minutes')", parts=_AGGREGATES
)
_WINDOW_FUNCTION = Operation(
    "a window function (over)",
    "aggregate by the key: F.sum('amount') for a total, F.max_by(F.struct('*'), 'time') for the newest row",
)
_JOIN_WITHOUT_KEY = Operation(
    "a join without an equal key",
    "join on an expression that is equal in all rows (Spark refuses a literal): "
    "join(F.broadcast(table), (F.hash(events.id) % 1 == F.hash(table.low) % 1) & (events.id >= table.low), 'left')",
    _JOIN,
)
_LIMIT = Operation("limit", "pick the rows with a condition: where(...)", ("limit",))
_LARGE_TABLE = Operation(
    "a join with a large static table", "use F.broadcast(table) if the table fits into memory", _JOIN
)
_TABLE_FUNCTION = Operation("a Python table function", "return an array from a Python function, and explode it")
_PLAIN_CALL = "call it without barrier= and profile="
_MAP_IN_PANDAS = Operation("mapInPandas with a barrier or a profile", _PLAIN_CALL, ("mapInPandas",))
_MAP_IN_ARROW = Operation("mapInArrow with a barrier or a profile", _PLAIN_CALL, ("mapInArrow",))
_AGGREGATE = Operation("an aggregate of this kind", "use built-in aggregates by a key")
_BY_RANGE = Operation("repartitionByRange", "repartition by a key: repartition('key')", ("repartitionByRange",))
_BY_GROUP = "use groupBy with built-in aggregates"
_BUILT_IN_AGGREGATES = "use built-in aggregates"
OPERATIONS: dict[str, Operation] = {
    "StreamingSymmetricHashJoin": Operation(
        "a join of two streams",
        "read both topics in one pipeline, give them the same columns, union them and aggregate by the key",
        _JOIN,
    ),
    "SessionWindow": _SESSION_WINDOW,
    "MergingSessions": _SESSION_WINDOW,
    "UpdatingSessions": _SESSION_WINDOW,
    "MapInPandas": _MAP_IN_PANDAS,
    "MapInArrow": _MAP_IN_ARROW,
    "PythonMapInArrow": _MAP_IN_ARROW,
    "BatchEvalPythonUDTF": _TABLE_FUNCTION,
    "ArrowEvalPythonUDTF": _TABLE_FUNCTION,
    "StreamingGlobalLimit": _LIMIT,
    "StreamingLocalLimit": _LIMIT,
    "GlobalLimit": _LIMIT,
    "LocalLimit": _LIMIT,
    "CollectLimit": _LIMIT,
    "Sort": Operation("a sort", "sort where the results are read", ("sort", "orderBy")),
    "TakeOrderedAndProject": Operation("a sort with a limit", "aggregate with max_by or min_by", ("limit",)),
    "StreamingDeduplicateWithinWatermark": Operation(
        "dropDuplicatesWithinWatermark",
        "use Spark 4.3, or dropDuplicates with the key and the time that has the watermark",
        ("dropDuplicatesWithinWatermark",),
    ),
    "FlatMapGroupsInPandasWithState": Operation("applyInPandasWithState", _BY_GROUP, ("applyInPandasWithState",)),
    "FlatMapGroupsWithState": Operation("flatMapGroupsWithState", _BY_GROUP),
    "TransformWithStateInPySpark": Operation(
        "transformWithState in Python with an initial state",
        "remove initialState=; write the initial state as records to a topic of its own, and union it",
        ("transformWithState", "transformWithStateInPandas"),
    ),
    "FlatMapGroupsInPandas": Operation("applyInPandas", _BY_GROUP, ("applyInPandas",)),
    "FlatMapGroupsInArrow": Operation("applyInArrow", _BY_GROUP, ("applyInArrow",)),
    "FlatMapCoGroupsInPandas": Operation("cogroup", "union both sides, and aggregate by the key"),
    "AggregateInPandas": Operation("a pandas aggregate function", _BUILT_IN_AGGREGATES),
    "ArrowAggregatePython": Operation("an Arrow aggregate function", _BUILT_IN_AGGREGATES),
    "Window": _WINDOW_FUNCTION,
    "ArrowWindowPython": _WINDOW_FUNCTION,
    "SortMergeJoin": _LARGE_TABLE,
    "ShuffledHashJoin": _LARGE_TABLE,
    "BroadcastNestedLoopJoin": _JOIN_WITHOUT_KEY,
    "CartesianProduct": _JOIN_WITHOUT_KEY,
    "Coalesce": Operation("coalesce", "remove it; --tasks N lets partitions share tasks", ("coalesce",)),
    "Sample": Operation(
        "sample", "use a condition on a hash of the key: where('abs(hash(key)) % 100 < 5')", ("sample",)
    ),
    "Exchange": _BY_RANGE,
    "ShuffleExchange": _BY_RANGE,
    **dict.fromkeys(_AGGREGATES, _AGGREGATE),
}
"""By the prefix of the plan node's name."""


def operation_of(node: str) -> Operation:
    """Return the operation of a plan node: the longest known prefix of its name wins."""
    known = [prefix for prefix in OPERATIONS if node.startswith(prefix)]
    if not known:
        return Operation(f"the operation {node}", "remove it, or do it where the results are read")
    return OPERATIONS[max(known, key=len)]


def _refused_operations(match: re.Match[str]) -> Mapping[str, str]:
    """Find the operations among the class names in Spark's message."""
    classes = re.findall(r"org\.apache\.[\w.$]*\.([\w$]+)", match.group())
    nodes = sorted({each.removesuffix("Exec").strip("$") for each in classes})
    parts = tuple(part for node in nodes for part in operation_of(node).parts)
    nodes = [node for node in nodes if not node.startswith(parts)] or nodes
    operations = list(dict.fromkeys(operation_of(node) for node in nodes))
    return {
        "operation": " and ".join(each.name for each in operations),
        "operator": ", ".join(nodes),
        "rewrite": "; ".join(dict.fromkeys(each.rewrite for each in operations)),
    }


PYTHON_FUNCTION_REFUSED = Condition(
    error=QueryRefused,
    code="PYTHON_FUNCTION",
    pattern=r"OPERATOR_OR_SINK_NOT_IN_ALLOWLIST.*\.python\.(?:Batch|Arrow)EvalPythonExec",
    what="{function} cannot run in real time",
    why="Spark sends rows to Python{path} only when a batch of them is full",
    fix="use a built-in expression of pyspark.sql.functions",
    only_realtime=True,
    defaults={"function": "a Python function", "path": ""},
)
OPERATOR_REFUSED = Condition(
    error=QueryRefused,
    code="OPERATOR_REFUSED",
    pattern=r"OPERATOR_OR_SINK_NOT_IN_ALLOWLIST.*org\.apache\..*",
    what="{operation} cannot run in real time",
    why="Spark refuses its operator {operator} in this mode",
    fix="{rewrite}",
    only_realtime=True,
    details=_refused_operations,
)
STATE_BELOW_UNION = Condition(
    error=QueryRefused,
    code="STATE_BELOW_UNION",
    spark=("STREAMING_REAL_TIME_MODE.STATEFUL_OPERATORS_BEFORE_UNION_NOT_SUPPORTED",),
    what="an aggregate or a deduplication below a union cannot run in real time",
    why="Spark does not plan state below a union in this mode",
    fix="union first and aggregate afterwards, or write both branches to one topic with two pipelines",
    only_realtime=True,
)
