"""Another query's checkpoint.

Anti-pattern:
    Two queries with one folder, or a folder that is used again after the topics have changed: offsets of other records
    are taken for this query's.

Best practice:
    A folder for each query; ``.tailrace/checkpoints/<name>`` is one by default.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "CHECKPOINT_FOREIGN"


def check(query: Query) -> Iterator[Finding]:
    """Compare the owner with the query."""
    if query.saved is not None and query.saved.belongs_to:
        yield error(
            CODE,
            f"the checkpoint {query.saved.location} belongs to {query.saved.belongs_to}",
            why=f"going on from its offsets would skip or repeat records of {query.name!r}",
            fix="give this query its own: --checkpoint DIR; or delete the folder if its progress is not needed",
        )
