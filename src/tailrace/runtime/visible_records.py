"""Where the records end that a consumer can see: a log's own end also counts the markers of transactions."""

from collections.abc import Callable, Mapping, Sequence

from tailrace.engine import StreamRead
from tailrace.errors import KafkaError
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import partition_counts, visible_ends

VisibleRecords = Callable[[Sequence[str]], Mapping[str, int]]
"""From names like ``topic-partition`` to the offset after the last record of each; unknown ones are left out."""


def visible_records(reads: Sequence[StreamRead]) -> VisibleRecords:
    """Ask the brokers of a query's sources."""

    def ends_of(places: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        topics = {place.rpartition("-")[0] for place in places}
        for read in reads:
            options = {key.lower(): value for key, value in read.options.items()}
            config = client_config(options.get("kafka.bootstrap.servers", ""), options)
            if config is None:
                continue  # only Spark can ask this one
            try:
                counts = partition_counts(config, sorted(topics))
                ends = visible_ends(config, counts, committed=options.get("kafka.isolation.level") == "read_committed")
            except KafkaError:
                continue
            found |= {f"{topic}-{number}": end for topic, each in ends.items() for number, end in each.items()}
        return found

    return ends_of
