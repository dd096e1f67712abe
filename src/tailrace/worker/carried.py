"""The user's functions as a worker of a real-time query calls them.

This package is sent to workers by value, so nothing in it imports the rest of Tailrace. What a function means is left
to Spark's own worker, which makes each of them as for its own operators: conversions, named arguments, broadcasts,
profilers. Added is what a stream needs: an exception becomes an answer beside the row that it is about, each call is
timed, and a function is loaded once per process.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.columns import columns
from tailrace.worker.frames import frames
from tailrace.worker.rows import rows
from tailrace.worker.sending import packed, send_at_once
from tailrace.worker.streams import stream


def function(told: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """A function for Spark's worker, and its type, by what the engine tells of the user's."""
    from pyspark.sql.types import StringType

    ways: dict[str, Callable[[Mapping[str, Any]], Callable[..., Any]]] = {
        "rows": rows,
        "columns": columns,
        "stream": stream,
        "frames": frames,
    }
    send_at_once()
    run = ways[told["way"]](told)

    def answer(message: Any) -> Any:
        return packed(run(message)) if message else None  # an empty message asks whether everything is loaded

    # Spark's worker converts what is not of a simple type; what it gets here is converted already.
    return answer, StringType()
