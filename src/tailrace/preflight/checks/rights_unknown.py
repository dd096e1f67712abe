"""The broker does not report the user's permissions.

Problem:
    Tailrace cannot tell before the start whether the pipeline's user may use its topics: a missing permission ends the
    query when it first reads or writes.

Do this instead:
    Use a broker that reports permissions, as Apache Kafka does since 2.3. With another one, ask its administrator:
    sources need READ, the sink and the topic of dead letters need WRITE.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query

CODE = "RIGHTS_UNKNOWN"


def check(query: Query) -> Iterator[Finding]:
    """Report the topics without known permissions."""
    if query.rights_unknown:
        yield advice(
            CODE,
            f"the broker does not say whether this pipeline may use {', '.join(query.rights_unknown)}",
            why="it describes topics without the user's permissions",
            fix="check that the user has READ on the sources, and WRITE on the sink and the topic of dead letters",
        )
