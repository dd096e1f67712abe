"""Where a query's rows come from: the Kafka topics that its plan reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tailrace.engine import StreamRead, kafka_partitions
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import list_topics, matching, partition_counts


@dataclass(frozen=True)
class SourceTopics:
    """The topics of one Kafka source, with their numbers of partitions."""

    partitions: Mapping[str, int]

    @property
    def total(self) -> int:
        """The partitions of all topics together: as many tasks read them in real time."""
        return sum(self.partitions.values())


def source_topics(read: StreamRead, spark: SparkSession) -> SourceTopics | None:
    """Ask the broker for the topics of a Kafka source; None where it is no Kafka source or cannot be asked."""
    options = {key.lower(): value for key, value in read.options.items()}
    servers = options.get("kafka.bootstrap.servers")
    if "kafka" not in read.format.lower() or servers is None:
        return None
    config = client_config(servers, options)
    if config is None:
        return SourceTopics(topics_by_spark(spark, options)) if "subscribe" in options else None
    if "assign" in options:
        assigned = json.loads(options["assign"])
        partition_counts(config, assigned)
        return SourceTopics({topic: len(partitions) for topic, partitions in assigned.items()})
    if "subscribepattern" in options:
        return SourceTopics(matching(list_topics(config), options["subscribepattern"]))
    return SourceTopics(partition_counts(config, _subscribed(options)))


def topics_by_spark(spark: SparkSession, options: Mapping[str, str]) -> dict[str, int]:
    """Partitions per subscribed topic, asked by Spark's Kafka client where Tailrace's own cannot connect."""
    return kafka_partitions(spark, options, _subscribed(options))


def _subscribed(options: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in options.get("subscribe", "").split(",")]
