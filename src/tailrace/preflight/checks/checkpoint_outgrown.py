"""Another number of sources than the checkpoint's.

Anti-pattern:
    A second source for a query that has been running, on its old checkpoint: offsets are kept by the sources' order.

Best practice:
    A fresh checkpoint for the changed query; ``starting`` says where it begins.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "CHECKPOINT_OUTGROWN"


def check(query: Query) -> Iterator[Finding]:
    """Compare the sources in the checkpoint with the query's."""
    saved = query.saved
    if saved is None or saved.belongs_to or not saved.offsets or not query.reads:
        return
    if len(saved.offsets) != len(query.reads):
        yield error(
            CODE,
            f"it has another number of sources than its checkpoint: {len(query.reads)}, not {len(saved.offsets)}",
            why="a checkpoint keeps offsets by position, so sources can be neither added nor removed",
            fix="a fresh checkpoint for the changed query: --checkpoint DIR",
        )
