"""Signs that a query does not need real time.

Anti-pattern:
    Windows of an hour in real time: the slots are held all day for results that change what somebody sees once an hour.

Best practice:
    Micro-batch, with the trigger interval that the reader of the results needs: one slot is enough for it.
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
    """Whether windows are far longer than any latency, or the sink gives it away."""
    if not query.realtime or query.slots is None or not query.runs_in_microbatch:
        return
    linger = linger_ms(query)
    if linger >= LONG_LINGER_MS:
        yield advice(
            CODE,
            f"a sink that gathers results for {linger:g} ms cannot use what real time gains",
            why=f"real time holds {counted(query.slots.required, 'slot')} while it runs; micro-batch needs one",
            fix=f"--mode microbatch, or unset {LINGER}",
        )
    longest = max(query.windows_s, default=0.0)
    if longest >= LONG_WINDOW_S:
        yield advice(
            CODE,
            f"a window of {longest / 60:g} minutes rarely needs results within milliseconds",
            why=f"real time holds {counted(query.slots.required, 'slot')} while it runs; micro-batch needs one",
            fix="--mode microbatch --trigger-every 10s, unless somebody waits for each update",
        )
