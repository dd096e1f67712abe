"""A setting of the consumer delays every record.

Problem:
    ``kafka.fetch.min.bytes=65536`` on the source, to save requests: the broker responds to a fetch only when it has
    that many bytes, or after ``kafka.fetch.max.wait.ms``.

Do this instead:
    Use the consumer's default of one byte: the broker responds to a fetch with the first record.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, warning
from tailrace.preflight.latency import FETCH_BYTES, fetch_wait_ms
from tailrace.preflight.query import Query

CODE = "SOURCE_SLOW"
_TOLERATED_MS = 5


def check(query: Query) -> Iterator[Finding]:
    """Look at the options of each source."""
    for read in query.reads if query.realtime else ():
        wait = fetch_wait_ms(read.options)
        if wait > _TOLERATED_MS:
            yield warning(
                CODE,
                f"the broker may hold each record for {wait:g} ms before a task gets it",
                why=f"{FETCH_BYTES} makes it wait for more records",
                fix=f"unset {FETCH_BYTES} on the source",
            )
