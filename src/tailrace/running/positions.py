"""Where a running real-time query is in its topics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.engine import ReaderPosition, RunControl
from tailrace.errors import KafkaError
from tailrace.prepare.endpoint import Endpoint

_SILENT_MS = 5000
"""How long no broker has responded to the engine if it is not worth asking one."""


@dataclass(frozen=True)
class Position:
    """Where a query is in a partition.

    Attributes:
        source: The number of the source in the query; two sources may read one topic.
        topic: The topic.
        partition: The number of the partition.
        task: The number of the task that reads it; partitions with the same number share the task.
        offset: The offset of the next record that it reads.
        lag: How far the end of the partition is ahead of ``offset``; None if no broker responds.
        records: The number of records that it has read since the last checkpoint.
        bytes: Their size.
        last_record_ms: The timestamp of the last of them; None if there is none.
        waits_for: ``"records"`` if it waits for records; ``"downstream"`` if it works on records that it has read, or
            its sink does not take more; None if no task reads the partition, as between two batches.
        waited_s: For how many seconds: since the task asked for records, since it passed on the last record, or since
            the Python function was called.
    """

    source: int
    topic: str
    partition: int
    task: int
    offset: int
    lag: int | None
    records: int
    bytes: int
    last_record_ms: int | None
    waits_for: str | None
    waited_s: float


def read_positions(control: RunControl, endpoints: Sequence[Endpoint]) -> list[Position]:
    """Return where a query is in each partition, in order."""
    readers = control.positions()
    ends = {
        (number, *place): end
        for number, endpoint in enumerate(endpoints)
        for place, end in _ends(endpoint, [each for each in readers if each.source == number]).items()
    }
    return [
        _position(each, ends.get((each.source, each.topic, each.partition)))
        for each in sorted(readers, key=lambda each: (each.source, each.topic, each.partition))
    ]


def _position(reader: ReaderPosition, end: int | None) -> Position:
    return Position(
        source=reader.source,
        topic=reader.topic,
        partition=reader.partition,
        task=reader.task,
        offset=reader.offset,
        lag=max(0, end - reader.offset) if end is not None else None,
        records=reader.records,
        bytes=reader.bytes,
        last_record_ms=reader.last_record_ms or None,
        waits_for=reader.waits_for or None,
        waited_s=reader.waited_ms / 1000,
    )


def _ends(endpoint: Endpoint, readers: Sequence[ReaderPosition]) -> Mapping[tuple[str, int], int | None]:
    """Return the ends of a source's partitions: asked now, or those that the engine asked a moment ago."""
    counts: dict[str, int] = {}
    for each in readers:  # the option ``assign`` may leave out low numbers
        counts[each.topic] = max(counts.get(each.topic, 0), each.partition + 1)
    known = {(each.topic, each.partition): each.end for each in readers}
    if any(each.unanswered_ms > _SILENT_MS for each in readers):
        return dict.fromkeys(known)
    try:
        own = endpoint.source_partitions() or {}
        ends = endpoint.ends({topic: count for topic, count in counts.items() if topic in own}) or {}
    except KafkaError:
        return dict.fromkeys(known)
    return known | {(topic, number): end for topic, each in ends.items() for number, end in each.items()}
