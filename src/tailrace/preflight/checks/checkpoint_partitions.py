"""Other shuffle partitions than the checkpoint's.

Anti-pattern:
    ``--shuffle-partitions 8`` for a query whose state was saved in 4 parts: each key would be looked for in the wrong
    part. Spark keeps the old number without a word.

Best practice:
    The number of the first start. For another one, a fresh checkpoint.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query
from tailrace.tuning import SHUFFLE_PARTITIONS

CODE = "CHECKPOINT_PARTITIONS"


def check(query: Query) -> Iterator[Finding]:
    """Compare what was chosen with what the checkpoint pins."""
    pinned = query.saved.shuffle_partitions if query.saved is not None else None
    asked = query.setting(SHUFFLE_PARTITIONS)
    if query.saved is not None and pinned is not None and asked.isdigit() and int(asked) != pinned:
        yield error(
            CODE,
            f"{SHUFFLE_PARTITIONS}={asked}, but the checkpoint {query.saved.location} was made with {pinned}",
            why="the state in it is divided into that many parts for good",
            fix=f"--shuffle-partitions {pinned}, or a fresh checkpoint: --checkpoint DIR",
        )
