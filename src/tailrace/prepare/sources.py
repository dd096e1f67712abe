"""Where a query's rows come from: the Kafka topics that its plan reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from tailrace.engine import kafka_partitions, stream_reads
from tailrace.kafka.client import client_config
from tailrace.kafka.rights import READ
from tailrace.kafka.topics import list_topics, matching, partition_counts
from tailrace.plan.streams import StreamRead
from tailrace.prepare.rights import BrokerAccess


@dataclass(frozen=True)
class SourceTopics:
    """The topics of one Kafka source, with their numbers of partitions."""

    partitions: Mapping[str, int]
    rights_unknown: tuple[str, ...] = ()
    """The topics of which the broker does not say whether this user may read them."""

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
    def rights_unknown(self) -> tuple[str, ...]:
        """The topics of which the broker does not say whether this user may read them."""
        return tuple(topic for source in self.sources if source is not None for topic in source.rights_unknown)

    @property
    def total(self) -> int | None:
        """The partitions of all sources together; None where some are not known."""
        known = [source.total for source in self.sources if source is not None]
        return sum(known) if known and None not in self.sources else None


def query_topics(frame: DataFrame) -> QueryTopics:
    """Ask the brokers for the topics of everything that a query reads.

    Raises:
        KafkaError: A broker does not answer, has no such topic, or does not let this user read it.
    """
    return QueryTopics(tuple(source_topics(read, frame.sparkSession) for read in stream_reads(frame)))


def source_topics(read: StreamRead, spark: SparkSession) -> SourceTopics | None:
    """Ask the broker for the topics of a Kafka source; None where it is no Kafka source or cannot be asked.

    Raises:
        KafkaError: The broker does not answer, has no such topic, or does not let this user read it.
    """
    options = kafka_options(read)
    partitions = _partitions(options, spark) if options is not None else None
    if options is None or partitions is None:
        return None
    return SourceTopics(partitions, tuple(BrokerAccess(options, spark).require(READ, sorted(partitions))))


def kafka_options(read: StreamRead) -> dict[str, str] | None:
    """The options of a Kafka source, in lower case; None where it is another one, or names no broker."""
    options = {key.lower(): value for key, value in read.options.items()}
    return options if "kafka" in read.format.lower() and "kafka.bootstrap.servers" in options else None


def _partitions(options: Mapping[str, str], spark: SparkSession) -> dict[str, int] | None:
    config = client_config(options["kafka.bootstrap.servers"], options)
    if config is None:
        return topics_by_spark(spark, options) if "subscribe" in options else None
    if "assign" in options:
        assigned = json.loads(options["assign"])
        partition_counts(config, assigned)
        return {topic: len(partitions) for topic, partitions in assigned.items()}
    if "subscribepattern" in options:
        return matching(list_topics(config), options["subscribepattern"])
    return partition_counts(config, _subscribed(options))


def require_groups(frame: DataFrame, own: SparkSession) -> set[str]:
    """See that Spark's driver may join the consumer groups of everything that a query reads, if it joins any.

    Returns:
        The groups of which the broker does not say whether it may.

    Raises:
        NotAuthorized: It may not.
    """
    unknown: set[str] = set()
    for read in stream_reads(frame):
        options = kafka_options(read)
        if options is not None:
            unknown |= set(BrokerAccess(options, own).require_group())
    return unknown


def topics_by_spark(spark: SparkSession, options: Mapping[str, str]) -> dict[str, int]:
    """Partitions per subscribed topic, asked by Spark's Kafka client where Tailrace's own cannot connect."""
    return kafka_partitions(spark, options, _subscribed(options))


def _subscribed(options: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in options.get("subscribe", "").split(",")]
