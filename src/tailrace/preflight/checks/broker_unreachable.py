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
        if cause is None:
            code, what, why = CODE, "no broker answers", refusal.message.strip().splitlines()[0]
            fix = "check that this machine reaches the addresses that the broker advertises (advertised.listeners)"
        else:
            code, what, why = cause.kind.code, "the broker refuses", cause.why
            fix = "correct the kafka.security, kafka.sasl and kafka.ssl options, or the user's rights at the broker"
        yield error(code, f"{what} Spark's Kafka client", why=why, fix=fix, where=where(refusal))
