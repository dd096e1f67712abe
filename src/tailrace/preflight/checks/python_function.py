"""A Python function in a real-time query.

Anti-pattern:
    ``@udf`` or ``@pandas_udf`` in real time: Spark refuses it, and with its check switched off
    (``spark.sql.streaming.realTimeMode.allowlistCheck=false``) a row waits for the end of the batch.

Best practice:
    A built-in expression of ``pyspark.sql.functions`` where there is one; micro-batch where there is none.
"""

from collections.abc import Iterator

from tailrace.engine import Operator
from tailrace.preflight.finding import Finding, advice, error, warning
from tailrace.preflight.latency import holds_rows_for_python
from tailrace.preflight.query import Query, where

CODE = "PYTHON_FUNCTION"
_PATHS = {"BatchEvalPython": "pickled rows", "ArrowEvalPython": "Arrow batches"}
_FIX = "a built-in expression of pyspark.sql.functions, or --mode microbatch"


def check(query: Query) -> Iterator[Finding]:
    """Which Python functions the plan calls, on which path, and what that costs."""
    for node in query.python_nodes if query.realtime else ():
        names = ", ".join(node.functions) or "a Python function"
        if node.refused:
            yield error(
                CODE,
                f"{names} is Python, which Spark does not run in real time",
                why=f"it would go to a Python worker as {_path(node)}, and wait for a batch of them to fill",
                fix=_FIX,
                where=where(node),
            )
        elif holds_rows_for_python(query):
            yield warning(
                CODE,
                f"rows wait for {names} up to {query.interval_ms / 1000:g} s",
                why=f"they go to a Python worker as {_path(node)}, when many have come or at the next checkpoint",
                fix=_FIX,
                where=where(node),
            )
        else:
            yield advice(
                CODE,
                f"{names} gets each row in a message of its own",
                why=f"rows go to a Python worker as {_path(node)}, each by itself: a few thousand a second at most",
                fix=_FIX,
                where=where(node),
            )


def _path(node: Operator) -> str:
    return _PATHS[node.name]
