"""A shuffle holds rows longer than necessary.

Problem:
    A Spark context that was created without Tailrace: a row waits up to 50 ms in the buffer of a shuffle.

Do this instead:
    Call ``tr.session()`` before anything else starts Spark: it sets the timer to 1 ms, which is fixed with the context.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.latency import SHUFFLE_TIMER, shuffle_wait_ms
from tailrace.preflight.query import Query

CODE = "SHUFFLE_TIMER"
_TOLERATED_MS = 5


def check(query: Query) -> Iterator[Finding]:
    """Look at the timer in force."""
    wait = shuffle_wait_ms(query)
    if query.realtime and query.shuffles and wait > _TOLERATED_MS:
        yield warning(
            CODE,
            f"each shuffle holds a row for up to {wait:g} ms",
            why=f"{SHUFFLE_TIMER} is {wait:g}, and fixed with the Spark context",
            fix=f"create the session with tr.session(), or set {SHUFFLE_TIMER}=1 before Spark starts",
        )
