"""The end of each partition as a consumer sees it: a log's own end also counts transaction markers."""

from collections.abc import Callable, Mapping, Sequence

from tailrace.errors import KafkaError
from tailrace.plan.streams import StreamRead
from tailrace.prepare.endpoint import Endpoint

VisibleRecords = Callable[[int, Sequence[str]], Mapping[str, int]]
"""Maps a source's number and names like ``topic-partition`` to the offset after the last record of each partition.

Partitions that cannot be asked are left out."""


def visible_records(reads: Sequence[StreamRead]) -> VisibleRecords:
    """Return a function that asks the brokers of each source; Spark's progress lists sources in the same order."""

    def ends_of(source: int, partitions: Sequence[str]) -> dict[str, int]:
        if source >= len(reads):
            return {}
        endpoint = Endpoint.of(reads[source].options)
        topics = {partition.rpartition("-")[0] for partition in partitions}
        try:
            ends = endpoint.ends(endpoint.partitions(sorted(topics))) or {}
        except KafkaError:
            return {}
        return {f"{topic}-{number}": end for topic, each in ends.items() for number, end in each.items()}

    return ends_of
