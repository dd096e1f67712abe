"""The checkpoint belongs to another query.

Problem:
    Two queries use one folder, or a query uses its folder again after its topics have changed. The query then takes the
    offsets of other records for its own.

Do this instead:
    Give each query its own folder. By default each query has its own: ``.tailrace/checkpoints/<name>``.
"""

from collections.abc import Iterator

from tailrace.conditions.checkpoints import CHECKPOINT_FOREIGN
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = CHECKPOINT_FOREIGN.code


def check(query: Query) -> Iterator[Finding]:
    """Compare the checkpoint's owner with the query."""
    if query.saved is not None and query.saved.belongs_to:
        message = CHECKPOINT_FOREIGN.message(
            location=query.saved.location, owner=query.saved.belongs_to, query=query.name
        )
        yield error(CODE, message.what, why=message.why, fix=message.fix)
