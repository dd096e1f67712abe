"""The checkpoint has another number of shuffle partitions.

Problem:
    ``--shuffle-partitions 8`` for a query whose state was saved in 4 partitions: the query would look for each key in
    the wrong one. Spark keeps the old number and reports nothing.

Do this instead:
    Use the number of the first start. For another number, use a fresh checkpoint.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query
from tailrace.tuning import SHUFFLE_PARTITIONS

CODE = "CHECKPOINT_PARTITIONS"


def check(query: Query) -> Iterator[Finding]:
    """Compare the setting with the checkpoint's number."""
    pinned = query.saved.shuffle_partitions if query.saved is not None else None
    setting = query.setting(SHUFFLE_PARTITIONS)
    if query.saved is not None and pinned is not None and setting.isdigit() and int(setting) != pinned:
        yield error(
            CODE,
            f"{SHUFFLE_PARTITIONS} is {setting}, but the checkpoint {query.saved.location} was written with {pinned}",
            why="a checkpoint divides its state into a fixed number of partitions",
            fix=f"use --shuffle-partitions {pinned}, or a fresh checkpoint: --checkpoint DIR",
        )
