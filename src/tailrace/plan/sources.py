"""Where a query's rows come from: the Kafka topics that its plan reads."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.engine import StreamRead
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import list_topics, partition_counts


@dataclass(frozen=True)
class SourceTopics:
    """The topics of one Kafka source, with their numbers of partitions."""

    partitions: Mapping[str, int]

    @property
    def total(self) -> int:
        """The partitions of all topics together: as many tasks read them in real time."""
        return sum(self.partitions.values())


def source_topics(read: StreamRead) -> SourceTopics | None:
    """Ask the broker for the topics of a Kafka source; None where it is no Kafka source or cannot be asked."""
    options = {key.lower(): value for key, value in read.options.items()}
    servers = options.get("kafka.bootstrap.servers")
    config = client_config(servers, options) if servers else None
    if "kafka" not in read.format.lower() or config is None:
        return None
    if "assign" in options:
        assigned = json.loads(options["assign"])
        partition_counts(config, assigned)
        return SourceTopics({topic: len(partitions) for topic, partitions in assigned.items()})
    if "subscribepattern" in options:
        pattern = re.compile(options["subscribepattern"])
        return SourceTopics({name: count for name, count in list_topics(config).items() if pattern.fullmatch(name)})
    names = [name.strip() for name in options.get("subscribe", "").split(",")]
    return SourceTopics(partition_counts(config, names))
