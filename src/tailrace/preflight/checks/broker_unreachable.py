"""A broker does not respond to Spark's Kafka client, or refuses it.

Problem:
    The broker's ``advertised.listeners`` name a host that this machine does not know. The broker responds at its own
    address, and sends every client on to one that does not respond.

Do this instead:
    Advertise listeners that every machine of the cluster can reach.
"""

from collections.abc import Iterator

from tailrace.conditions.kafka import BROKER_REFUSALS, BROKER_SILENT, java_cause
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = BROKER_SILENT.code


def check(query: Query) -> Iterator[Finding]:
    """Report what Spark's client got when it asked for offsets."""
    for refusal in query.refusals_of(BROKER_SILENT):
        cause = java_cause(refusal.message)
        condition = BROKER_REFUSALS[cause.kind] if cause is not None else BROKER_SILENT
        reply = cause.why if cause is not None else refusal.message.strip().splitlines()[0]
        yield refused(query, condition, where=where(refusal), reply=reply)
