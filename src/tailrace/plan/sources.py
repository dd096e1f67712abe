"""Where a query's rows come from: the Kafka topics that its plan reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from tailrace.engine import StreamRead, kafka_partitions, stream_reads
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


@dataclass(frozen=True)
class QueryTopics:
    """The topics of all sources of a query, as far as they can be asked for."""

    sources: tuple[SourceTopics | None, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are known."""
        return tuple(sorted({topic for source in self.sources if source is not None for topic in source.partitions}))

    @property
    def total(self) -> int | None:
        """The partitions of all sources together; None where some are not known."""
        known = [source.total for source in self.sources if source is not None]
        return sum(known) if known and None not in self.sources else None


def query_topics(frame: DataFrame) -> QueryTopics:
    """Ask the brokers for the topics of everything that a query reads.

    Raises:
        KafkaError: A broker does not answer, or has no such topic.
    """
    return QueryTopics(tuple(source_topics(read, frame.sparkSession) for read in stream_reads(frame)))


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
