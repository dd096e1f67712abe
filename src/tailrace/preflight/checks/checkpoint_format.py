"""The checkpoint has the old format.

Problem:
    You start real time on the checkpoint of a micro-batch query that Spark started with its own defaults. Real time
    refuses that format.

Do this instead:
    Start with Tailrace in either mode: it writes format 2 from the first batch on, and both modes can continue it.
"""

from collections.abc import Iterator

from tailrace.conditions.checkpoints import CHECKPOINT_FORMAT_OLD
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query

CODE = CHECKPOINT_FORMAT_OLD.code


def check(query: Query) -> Iterator[Finding]:
    """Look at the version of the commit log."""
    if query.realtime and query.saved is not None and query.saved.format == 1:
        yield refused(query, CHECKPOINT_FORMAT_OLD, checkpoint=f"the checkpoint {query.saved.location}")
