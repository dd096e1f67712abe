"""A Kafka option that real time refuses.

Anti-pattern:
    ``maxOffsetsPerTrigger`` or ``minPartitions`` kept from a micro-batch query: the first real-time batch fails.

Best practice:
    Leave them away: in real time every record is read when it comes, by one task for each partition.
"""

import re
from collections.abc import Iterator

from tailrace.plan.refusal import Refusal
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "SOURCE_OPTION_REFUSED"
_REFUSED = re.compile(r"^(\w+) is not compatible with real time mode")
WHY = {
    "maxoffsetspertrigger": "it bounds a batch by its records, and a real-time batch is bounded by time",
    "minoffsetspertrigger": "it lets a batch wait for records, and in real time none waits",
    "maxtriggerdelay": "it lets a batch wait for records, and in real time none waits",
    "minpartitions": "it splits a partition among tasks, and in real time each partition has one",
    "endingtimestamp": "it bounds what is read, and a real-time query has no end",
}


def is_option(refusal: Refusal) -> bool:
    """Whether Spark refuses an option of a source."""
    return _REFUSED.match(refusal.message) is not None


def check(query: Query) -> Iterator[Finding]:
    """What the source says of its options."""
    for refusal in query.refusals:
        found = _REFUSED.match(refusal.message)
        if found is None:
            continue
        name = found.group(1).lower()
        given = next((key for read in query.reads for key in read.options if key.lower() == name), found.group(1))
        yield error(
            CODE,
            f"the source option {given} cannot be used in real time",
            why=WHY.get(name, "Spark's Kafka source refuses it"),
            fix=query.or_microbatch(f"unset {given}"),
            where=where(refusal),
        )
