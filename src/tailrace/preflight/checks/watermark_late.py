"""The watermark moves only at checkpoints.

Problem:
    A window of one minute with ``--checkpoint-every 5m``: the state of closed windows stays up to ten minutes longer,
    and the query accepts late records for as long.

Do this instead:
    If late records or the size of the state matter, use a checkpoint interval that is short against the window.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query, where

CODE = "WATERMARK_LATE"
_SHORT = 20
"""An interval is short against a window if this many intervals fit into it."""
_SHORTEST_S = 5.0
_WITHOUT_WINDOWS_S = 60.0


def check(query: Query) -> Iterator[Finding]:
    """Compare the checkpoint interval with the windows."""
    short_s = max(_SHORTEST_S, min(query.windows_s) / _SHORT) if query.windows_s else _WITHOUT_WINDOWS_S
    seconds = query.interval_ms / 1000
    if not query.realtime or seconds <= short_s:
        return
    for node in query.operators("EventTimeWatermark"):
        yield advice(
            CODE,
            f"windows close, and state is dropped, up to {2 * seconds:g} s after the watermark has passed",
            why=f"in real time a watermark moves at checkpoints, every {seconds:g} s, and takes effect at the next",
            fix=f"use --checkpoint-every {short_s:g}s if late records or the size of the state matter",
            where=where(node),
        )
        return
