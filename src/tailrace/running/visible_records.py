"""Where the records end that a consumer can see: a log's own end also counts the markers of transactions."""

from collections.abc import Callable, Mapping, Sequence

from tailrace.errors import KafkaError
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import partition_counts, visible_ends
from tailrace.plan.streams import StreamRead

VisibleRecords = Callable[[int, Sequence[str]], Mapping[str, int]]
"""From a source, by its number, and names like ``topic-partition`` to the offset after the last record of each.

Unknown partitions are left out."""


def visible_records(reads: Sequence[StreamRead]) -> VisibleRecords:
    """Return a function that asks the brokers of each source; Spark's progress lists sources in the same order."""

    def ends_of(source: int, partitions: Sequence[str]) -> dict[str, int]:
        if source >= len(reads):
            return {}
        options = {key.lower(): value for key, value in reads[source].options.items()}
        config = client_config(options.get("kafka.bootstrap.servers", ""), options)
        if config is None:
            return {}  # only Spark's own client can ask this broker
        topics = {partition.rpartition("-")[0] for partition in partitions}
        committed = options.get("kafka.isolation.level") == "read_committed"
        try:
            ends = visible_ends(config, partition_counts(config, sorted(topics)), committed=committed)
        except KafkaError:
            return {}
        return {f"{topic}-{number}": end for topic, each in ends.items() for number, end in each.items()}

    return ends_of
