"""Records that the query has not read are gone.

Problem:
    A topic was deleted and created again since the last run. The offsets in the checkpoint mean nothing in the new
    topic, and a query that continues from them skips its first records. Or the topic has deleted unread records. Or a
    partition ends before the query's position.

Do this instead:
    Start the query with ``on_data_loss="warn"``: it reads the new topic from its beginning, continues with the first
    record that is left, or continues at the end of the partition, without the records before it.
"""

from collections.abc import Iterator

from tailrace.conditions.sources import RECORDS_LOST
from tailrace.errors import DataLost
from tailrace.preflight.finding import Finding, refused, warning
from tailrace.preflight.query import Query

CODE = DataLost.code


def check(query: Query) -> Iterator[Finding]:
    """Report what the brokers no longer have."""
    for loss in query.losses:
        condition = RECORDS_LOST[loss.kind]
        values = {"topic": loss.topic, "offsets": loss.offsets}
        if loss.accepted:
            message = condition.message(**values)
            fix = f"nothing to do: the query continues {condition.defaults['continues']}"
            yield warning(CODE, message.what, why=message.why, fix=fix)
        else:
            yield refused(query, condition, **values)
