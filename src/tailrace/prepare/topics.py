"""The Kafka topics that a query reads, with their numbers of partitions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tailrace.kafka.rights import READ
from tailrace.plan.streams import StreamRead
from tailrace.prepare.endpoint import SERVERS, Endpoint


@dataclass(frozen=True)
class SourceTopics:
    """The topics of one Kafka source."""

    partitions: Mapping[str, int]
    rights_unknown: tuple[str, ...] = ()
    """The topics whose permissions the broker does not report."""

    @property
    def total(self) -> int:
        """The number of partitions of all topics; in real time each has a task, unless ``tasks`` limits them."""
        return sum(self.partitions.values())


@dataclass(frozen=True)
class QueryTopics:
    """The topics of all sources of a query; None stands for a source that cannot be asked."""

    sources: tuple[SourceTopics | None, ...] = (None,)

    @property
    def known(self) -> list[SourceTopics]:
        """The sources whose topics are known."""
        return [source for source in self.sources if source is not None]

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are known."""
        return tuple(sorted({topic for source in self.known for topic in source.partitions}))

    @property
    def rights_unknown(self) -> set[str]:
        """The topics whose permissions the broker does not report."""
        return {topic for source in self.known for topic in source.rights_unknown}

    def tasks(self, most: int | None, reads: Sequence[int] = ()) -> int | None:
        """Return how many tasks read all sources; None if the partitions of some are unknown.

        Args:
            most: The most tasks that read each source; None for one task per partition.
            reads: How often the query reads each source; empty if once.
        """
        if not self.known or None in self.sources:
            return None
        times = reads or [1] * len(self.sources)
        tasks = [source.total if most is None else min(source.total, most) for source in self.known]
        return sum(number * each for number, each in zip(times, tasks, strict=True))


def source_topics(endpoint: Endpoint) -> SourceTopics | None:
    """Ask the broker for the topics of a Kafka source; return None if it cannot be asked.

    Raises:
        KafkaError: The broker does not respond, has no such topic, or does not let this user read it.
    """
    partitions = endpoint.source_partitions()
    if partitions is None:
        return None
    return SourceTopics(partitions, tuple(endpoint.require(READ, sorted(partitions))))


def query_topics(reads: Iterable[StreamRead], spark: SparkSession) -> QueryTopics:
    """Ask the brokers for the topics of every streaming source of a query.

    Raises:
        KafkaError: A broker does not respond, has no such topic, or does not let this user read it.
    """
    endpoints = [kafka_endpoint(read, spark) for read in reads]
    return QueryTopics(tuple(source_topics(each) if each is not None else None for each in endpoints))


def kafka_endpoint(read: StreamRead, spark: SparkSession | None) -> Endpoint | None:
    """Return the endpoint of a Kafka source; None for another source, or one that names no broker."""
    endpoint = Endpoint.of(read.options, spark)
    return endpoint if "kafka" in read.format.lower() and SERVERS in endpoint.options else None


def require_groups(reads: Sequence[StreamRead], own: SparkSession) -> set[str]:
    """Require that Spark's driver may join the consumer groups of a query's sources, if it joins any.

    Returns:
        The groups whose permissions the broker does not report.

    Raises:
        NotAuthorized: It may not.
    """
    endpoints = [kafka_endpoint(read, own) for read in reads]
    return {group for each in endpoints if each is not None for group in each.require_group()}
