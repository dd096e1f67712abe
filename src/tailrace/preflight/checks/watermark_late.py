"""A watermark in real time moves only at checkpoints.

Anti-pattern:
    A window of one minute with ``--checkpoint-every 5m``: state of closed windows stays up to five minutes longer, and
    late records are accepted for as long.

Best practice:
    A checkpoint interval that is short against the window, where late records or the size of the state matter.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query, where

CODE = "WATERMARK_LATE"


def check(query: Query) -> Iterator[Finding]:
    """Whether there is a watermark in a real-time query."""
    if not query.realtime:
        return
    for node in query.operators("EventTimeWatermark"):
        seconds = query.interval_ms / 1000
        yield advice(
            CODE,
            f"windows close up to {2 * seconds:g} s after their watermark has passed",
            why=f"in real time a watermark moves at checkpoints, every {seconds:g} s, and takes effect at the next",
            fix="a shorter --checkpoint-every, where late records or the size of the state matter",
            where=where(node),
        )
        return
