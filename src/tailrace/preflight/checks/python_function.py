"""The query calls a Python function.

Problem:
    ``@udf`` for what a built-in expression does: each call goes to a Python worker and back. Without Tailrace, Spark
    refuses Python functions in real time, and with its check off
    (``spark.sql.streaming.realTimeMode.allowlistCheck=false``) a row waits for the end of the batch.

Do this instead:
    Use a built-in expression of ``pyspark.sql.functions`` if there is one. If there is none, use ``@udf``,
    ``@pandas_udf``, ``arrow_udf``, ``mapInPandas`` or ``mapInArrow``: in real time Tailrace calls them with the rows
    that have arrived.
"""

from collections.abc import Iterator

from tailrace.conditions.operators import PYTHON_FUNCTION_REFUSED
from tailrace.plan.operator import Operator
from tailrace.preflight.finding import Finding, advice, refused, warning
from tailrace.preflight.latency import holds_rows_for_python
from tailrace.preflight.query import Query, where

CODE = PYTHON_FUNCTION_REFUSED.code
_PATHS = {"BatchEvalPython": "pickled rows", "ArrowEvalPython": "Arrow batches"}
"""How Spark's own operators send rows to Python."""


def check(query: Query) -> Iterator[Finding]:
    """Report each Python function with its path and its cost."""
    nodes = query.python_nodes if query.realtime else []
    # Spark may call a function in two places, as in a filter that it moves: one finding is enough.
    yield from dict.fromkeys(_by_engine(node) if node.path else _by_spark(node, query) for node in nodes)


def _by_engine(node: Operator) -> Finding:
    return advice(
        CODE,
        f"Python runs {_names(node)} on the rows that have arrived",
        why=f"rows go to a Python worker and back as {node.path}; no row waits until a batch is full",
        fix=f"{PYTHON_FUNCTION_REFUSED.fix} if there is one: it costs less",
        where=where(node),
    )


def _by_spark(node: Operator, query: Query) -> Finding:
    """Report a function in one of Spark's own operators, which Spark runs only if its check is off."""
    names, path = _names(node), _PATHS[node.name]
    if node.refused:
        function = f"Python function {names}" if node.functions else names
        return refused(query, PYTHON_FUNCTION_REFUSED, where=where(node), function=function, path=f" as {path}")
    fix = query.or_microbatch(PYTHON_FUNCTION_REFUSED.fix)
    if holds_rows_for_python(query):
        return warning(
            CODE,
            f"rows wait for {names} up to {query.interval_ms / 1000:g} s",
            why=f"they go to a Python worker as {path}, when a batch is full or at the next checkpoint",
            fix=fix,
            where=where(node),
        )
    return advice(
        CODE,
        f"{names} gets each row in its own message",
        why=f"rows go to a Python worker as {path}, one per message: at most a few thousand a second",
        fix=fix,
        where=where(node),
    )


def _names(node: Operator) -> str:
    return ", ".join(node.functions) or "a Python function"
