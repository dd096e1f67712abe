"""Rights that the broker keeps to itself.

Anti-pattern:
    A start without knowing whether the pipeline's user may use its topics: a missing right ends the query when it first
    reads or writes.

Best practice:
    A broker that tells its users what they may do, as Apache Kafka does since 2.3. With another one, ask whoever runs
    it: sources need READ, the sink and the topic of dead letters need WRITE.
"""

from collections.abc import Iterator

from tailrace.preflight.finding import Finding, advice
from tailrace.preflight.query import Query

CODE = "RIGHTS_UNKNOWN"


def check(query: Query) -> Iterator[Finding]:
    """Whether there is a topic of which the broker says nothing."""
    if query.rights_unknown:
        yield advice(
            CODE,
            f"the broker does not say whether this pipeline may use {', '.join(query.rights_unknown)}",
            why="it answers questions about topics, and leaves out what their user may do",
            fix="see that the user has READ on the sources, and WRITE on the sink and the topic of dead letters",
        )
