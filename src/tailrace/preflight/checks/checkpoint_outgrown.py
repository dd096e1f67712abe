"""The checkpoint has another number of sources than the query.

Problem:
    A query gets a second source and keeps its old checkpoint, which stores offsets by the order of the sources.

Do this instead:
    Use a fresh checkpoint for the changed query; ``starting`` says where it begins.
"""

from collections.abc import Iterator

from tailrace.conditions.checkpoints import SOURCES_CHANGED
from tailrace.errors import counted
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query

CODE = SOURCES_CHANGED.code


def check(query: Query) -> Iterator[Finding]:
    """Compare the sources in the checkpoint with the query's."""
    saved = query.saved
    if saved is None or saved.belongs_to or not saved.offsets or not query.reads:
        return
    if len(saved.offsets) != len(query.reads):
        counts = {"saved": counted(len(saved.offsets), "source"), "current": counted(len(query.reads), "source")}
        yield refused(query, SOURCES_CHANGED, **counts)
