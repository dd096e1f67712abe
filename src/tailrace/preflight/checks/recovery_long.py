"""A crash repeats many records.

Problem:
    ``--checkpoint-every 1h`` for a query with state or a shuffle when results must not be repeated: after a crash it
    repeats everything since the last checkpoint.

Do this instead:
    Use an interval as short as the pause at a checkpoint allows. Results carry the coordinates of their records, so a
    reader can recognise a repeated one.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query

CODE = "RECOVERY_LONG"
LONG_MS = 10 * 60 * 1000


def check(query: Query) -> Iterator[Finding]:
    """Look at the checkpoint interval."""
    if query.realtime and query.repeated_ms >= LONG_MS:
        minutes = query.repeated_ms / 60_000
        yield advice(
            CODE,
            f"after a crash the query processes and writes up to {minutes:g} minutes of records again",
            why="it saves its progress only at checkpoints",
            fix="use a shorter --checkpoint-every; 5m is the default",
        )
