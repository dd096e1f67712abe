"""Where a running real-time query is in its topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tailrace.engine import RunControl
from tailrace.errors import KafkaError
from tailrace.prepare.endpoint import Endpoint


@dataclass(frozen=True)
class Position:
    """Where a query is in a partition.

    Attributes:
        source: The number of the source in the query; two sources may read one topic.
        topic: The topic.
        partition: The number of the partition.
        offset: The offset of the next record that it reads.
        lag: The number of records that it has not read yet; None if the broker could not be asked.
        records: The number of records that it has read since the last checkpoint.
        bytes: Their size.
        last_record_ms: The timestamp of the last of them; None if there is none.
        waits_for_records: Whether it waits for records; otherwise it works on records that it has read.
    """

    source: int
    topic: str
    partition: int
    offset: int
    lag: int | None
    records: int
    bytes: int
    last_record_ms: int | None
    waits_for_records: bool


def read_positions(control: RunControl, endpoints: Sequence[Endpoint]) -> list[Position]:
    """Return where a query is in each partition, in order."""
    positions = control.positions()
    ends = {
        (number, *place): end
        for number, endpoint in enumerate(endpoints)
        for place, end in _ends(endpoint, [each for each in positions if each["source"] == number]).items()
    }
    return sorted(
        (
            Position(
                source=(source := int(each["source"])),
                topic=(topic := str(each["topic"])),
                partition=(partition := int(each["partition"])),
                offset=(offset := int(each["offset"])),
                lag=max(0, ends[source, topic, partition] - offset) if (source, topic, partition) in ends else None,
                records=int(each["records"]),
                bytes=int(each["bytes"]),
                last_record_ms=int(each["last_record_ms"]) or None,
                waits_for_records=bool(each["waits_for_records"]),
            )
            for each in positions
        ),
        key=lambda each: (each.source, each.topic, each.partition),
    )


def _ends(endpoint: Endpoint, positions: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    """Return the ends of a source's partitions; nothing if its broker does not answer."""
    counts: dict[str, int] = {}
    for each in positions:  # the option ``assign`` may leave out low numbers
        counts[each["topic"]] = max(counts.get(each["topic"], 0), int(each["partition"]) + 1)
    try:
        own = endpoint.source_partitions() or {}
        ends = endpoint.ends({topic: count for topic, count in counts.items() if topic in own}) or {}
    except KafkaError:
        return {}
    return {(topic, number): end for topic, each in ends.items() for number, end in each.items()}
