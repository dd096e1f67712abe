"""A Python function in a real-time query.

Anti-pattern:
    ``@udf`` or ``@pandas_udf`` in real time: Spark refuses it, and with its check switched off a row waits for the end
    of the batch.

Best practice:
    A built-in expression of ``pyspark.sql.functions`` where there is one; micro-batch where there is none.
"""

from collections.abc import Iterator

from tailrace.preflight.checks.operator_refused import PYTHON_NODES
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "PYTHON_FUNCTION"
_PATHS = {"BatchEvalPython": "pickled rows", "ArrowEvalPython": "Arrow batches"}


def check(query: Query) -> Iterator[Finding]:
    """Which Python functions the plan calls, and on which path."""
    for node in query.operators(*PYTHON_NODES):
        if not (query.realtime and node.refused):
            continue
        names = ", ".join(node.functions) or "a Python function"
        yield error(
            CODE,
            f"{names} is Python, which Spark does not run in real time",
            why=f"it would go to a Python worker as {_PATHS.get(node.name, 'batches')}, and wait for a batch to fill",
            fix="a built-in expression of pyspark.sql.functions, or --mode microbatch",
            where=where(node),
        )
