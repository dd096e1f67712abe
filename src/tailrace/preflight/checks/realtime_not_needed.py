"""The query may not need real time.

Problem:
    Windows of an hour in real time: the query holds its slots all day for results that somebody reads once an hour.

Do this instead:
    Use micro-batch, with the trigger interval that the readers of the results need: one slot is enough.
"""

from collections.abc import Iterator

from tailrace.errors import counted
from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.latency import LINGER, linger_ms
from tailrace.preflight.query import Query

CODE = "REALTIME_NOT_NEEDED"
LONG_WINDOW_S = 600
LONG_LINGER_MS = 500


def check(query: Query) -> Iterator[Finding]:
    """Look for long windows, and for a sink that waits."""
    if not query.realtime or query.slots is None or not query.runs_in_microbatch:
        return
    why = f"real time holds {counted(query.slots.required, 'slot')} while it runs; micro-batch needs one"
    linger = linger_ms(query)
    if linger >= LONG_LINGER_MS:
        yield advice(
            CODE,
            f"the sink keeps results for {linger:g} ms, which costs more than real time gains",
            why=why,
            fix=f"use --mode microbatch, or unset {LINGER}",
        )
    longest = max(query.windows_s, default=0.0)
    if longest >= LONG_WINDOW_S:
        yield advice(
            CODE,
            f"a window of {longest / 60:g} minutes rarely needs results within milliseconds",
            why=why,
            fix="use --mode microbatch --trigger-every 10s, unless somebody waits for each update",
        )
