"""The checkpoint belongs to another query.

Problem:
    Two queries use one folder, or a query uses its folder again after its topics have changed. The query then takes the
    offsets of other records for its own.

Do this instead:
    Give each query its own folder. The default, ``.tailrace/checkpoints/<name>``, is one.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "CHECKPOINT_FOREIGN"


def check(query: Query) -> Iterator[Finding]:
    """Compare the checkpoint's owner with the query."""
    if query.saved is not None and query.saved.belongs_to:
        yield error(
            CODE,
            f"the checkpoint {query.saved.location} belongs to {query.saved.belongs_to}",
            why=f"to continue from its offsets would skip or repeat records of {query.name!r}",
            fix="give this query its own: --checkpoint DIR; or delete the folder if nobody needs its progress",
        )
