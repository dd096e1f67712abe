"""A broker that Spark's Kafka client cannot reach.

Anti-pattern:
    A broker whose ``advertised.listeners`` name a host that is not known here: it answers at its address, and sends
    every client on to one that is not.

Best practice:
    Advertised listeners that every machine of the cluster can reach.
"""

from collections.abc import Iterator

from tailrace.kafka.failures import java_cause
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "BROKER_UNREACHABLE"


def check(query: Query) -> Iterator[Finding]:
    """What Spark's client was told when it asked for offsets."""
    for refusal in query.refused("TAILRACE_BROKER_SILENT"):
        cause = java_cause(refusal.message)
        yield error(
            cause.kind.code if cause is not None else CODE,
            "Spark's Kafka client gets no answer from the broker",
            why=cause.why if cause is not None else refusal.message.strip().splitlines()[0],
            fix="see that this machine reaches what the broker advertises (advertised.listeners), and its login",
            where=where(refusal),
        )
