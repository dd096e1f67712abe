"""The entry point of the worker code: it makes a function for Spark's worker from a function spec.

This package is sent to workers by value, so nothing in it imports the rest of Tailrace. Spark's own worker builds each
of the user's functions, with conversions, named arguments, broadcasts and profilers. This package adds what a stream
needs: an exception becomes the failure of its row, each call is timed, and a function is loaded once per process.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.column_iterators import column_iterator
from tailrace.worker.columns import column_functions
from tailrace.worker.map_functions import map_function
from tailrace.worker.reply import flush_each_reply, pickle_reply
from tailrace.worker.rows import row_functions
from tailrace.worker.state_processor import state_processor


def worker_function(spec: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """Return a function that replies to each message, and its return type for Spark's worker."""
    from pyspark.sql.types import StringType

    builders: dict[str, Callable[[Mapping[str, Any]], Callable[..., Any]]] = {
        "rows": row_functions,
        "columns": column_functions,
        "stream": column_iterator,
        "frames": map_function,
        "state": state_processor,
    }
    flush_each_reply()
    run = builders[spec["call_with"]](spec)

    def reply(message: Any) -> Any:
        return pickle_reply(run(message)) if message else None  # an empty message is a ping

    # Spark's worker converts results unless their type is simple; these are converted already.
    return reply, StringType()
