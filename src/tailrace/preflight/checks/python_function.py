"""A Python function in a real-time query.

Anti-pattern:
    ``@udf`` for what a built-in expression does: each call goes to a Python worker and back. On stock Spark, outside of
    Tailrace, real time refuses Python functions, and with its check switched off
    (``spark.sql.streaming.realTimeMode.allowlistCheck=false``) a row waits for the end of the batch.

Best practice:
    A built-in expression of ``pyspark.sql.functions`` where there is one. Where there is none, ``@udf``,
    ``@pandas_udf``, ``arrow_udf``, ``mapInPandas`` or ``mapInArrow``: a real-time query of Tailrace's calls them with
    what has arrived.
"""

from collections.abc import Iterator

from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, advice, error, warning
from tailrace.preflight.latency import holds_rows_for_python
from tailrace.preflight.query import Query, where

CODE = "PYTHON_FUNCTION"
_PATHS = {"BatchEvalPython": "pickled rows", "ArrowEvalPython": "Arrow batches"}
"""How rows go to the functions of Spark's own operators."""
_BUILT_IN = "a built-in expression of pyspark.sql.functions"


def check(query: Query) -> Iterator[Finding]:
    """Which Python functions the plan calls, on which path, and what that costs."""
    nodes = query.python_nodes if query.realtime else []
    # Spark may call a function in two places, such as in a filter that it has moved: once is told.
    yield from dict.fromkeys(_carried(node) if node.path else _by_spark(node, query) for node in nodes)


def _carried(node: Operator) -> Finding:
    """A function that the engine runs."""
    return advice(
        CODE,
        f"Python runs {_names(node)} on the rows that have arrived",
        why=f"they go to a Python worker and come back as {node.path}; none waits for a batch to fill",
        fix=f"{_BUILT_IN} is cheaper, where there is one",
        where=where(node),
    )


def _by_spark(node: Operator, query: Query) -> Finding:
    """A function in an operator of Spark's own: refused, unless its check is off."""
    names, path = _names(node), _PATHS[node.name]
    if node.refused:
        return error(
            CODE,
            f"{names} is Python, which Spark does not run in real time",
            why=f"it would go to a Python worker as {path}, and wait for a batch of them to fill",
            fix=query.or_microbatch(_BUILT_IN),
            where=where(node),
        )
    if holds_rows_for_python(query):
        return warning(
            CODE,
            f"rows wait for {names} up to {query.interval_ms / 1000:g} s",
            why=f"they go to a Python worker as {path}, when many have come or at the next checkpoint",
            fix=query.or_microbatch(_BUILT_IN),
            where=where(node),
        )
    return advice(
        CODE,
        f"{names} gets each row in a message of its own",
        why=f"rows go to a Python worker as {path}, each by itself: a few thousand a second at most",
        fix=query.or_microbatch(_BUILT_IN),
        where=where(node),
    )


def _names(node: Operator) -> str:
    return ", ".join(node.functions) or "a Python function"
