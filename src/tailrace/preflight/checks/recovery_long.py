"""What a crash costs.

Anti-pattern:
    ``--checkpoint-every 1h`` where results may not come twice: after a crash, or a stop, everything since the last
    checkpoint is processed again.

Best practice:
    As short as the pause at a checkpoint allows. Results carry their records' coordinates, so that a reader can tell
    a repeated one.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query

CODE = "RECOVERY_LONG"
LONG_MS = 10 * 60 * 1000


def check(query: Query) -> Iterator[Finding]:
    """Whether very much would be processed again."""
    if query.realtime and query.interval_ms >= LONG_MS:
        minutes = query.interval_ms / 60_000
        yield advice(
            CODE,
            f"after a crash up to {minutes:g} minutes of records are processed and written again",
            why="progress is saved only at checkpoints",
            fix="a shorter --checkpoint-every; 5m is the default",
        )
