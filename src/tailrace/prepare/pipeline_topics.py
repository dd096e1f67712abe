"""A pipeline's topics at the broker: what must be there before it starts, and how far they reach."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tailrace.checkpoint import Owner
from tailrace.engine import create_kafka_topic, kafka_partitions
from tailrace.errors import KafkaError, OptionRefused, TopicMissing
from tailrace.frames.source import require_fitting_records
from tailrace.kafka.client import client_config
from tailrace.kafka.failures import user_of
from tailrace.kafka.rights import READ, WRITE
from tailrace.kafka.topics import (
    ClientConfig,
    create_topic,
    first_missing_partitions,
    list_topics,
    matching,
    partition_counts,
    topic_facts,
    visible_ends,
)
from tailrace.pipeline import KafkaSource, Pipeline
from tailrace.plan.bound import Bound
from tailrace.prepare.rights import BrokerAccess

_WITHOUT_DEAD_LETTERS = "name another topic with Pipeline(dead_letters=...), or choose malformed='drop' or 'fail'"
_ISOLATION = "kafka.isolation.level"
Partitions = Mapping[str, int]
"""Topics and their numbers of partitions."""


def total_partitions(sources: Sequence[Partitions] | None) -> int | None:
    """The partitions of all sources together; None where they are not known."""
    return sum(sum(counts.values()) for counts in sources) if sources is not None else None


class PipelineTopics:
    """The topics of one pipeline.

    Tailrace's own Kafka client cannot connect everywhere that Spark's can, such as to a broker behind a Java key store;
    there Spark is asked, as soon as it runs, or what Spark cannot be asked is left to its own checks.
    """

    def __init__(self, pipeline: Pipeline, bootstrap_servers: str) -> None:
        self.pipeline = pipeline
        self._servers = bootstrap_servers
        self._configs = [client_config(bootstrap_servers, source.options) for source in pipeline.sources]
        self._sink_config = client_config(bootstrap_servers, pipeline.sink.options)
        self.rights_unknown: set[str] = set()
        """The topics of which a broker does not say whether the pipeline may use them."""

    @property
    def named(self) -> tuple[str, ...]:
        """The topics that the sources name; those of a pattern are not among them."""
        return tuple(name for source in self.pipeline.sources for name in source.topic_names)

    def owner(self, sources: Sequence[Partitions] | None) -> Owner:
        """Whose a checkpoint of the pipeline is; by the topics that are there, or else by those that it names."""
        names = {name for counts in sources or () for name in counts} or set(self.named)
        return Owner(self.pipeline.name, tuple(sorted(names)), self.pipeline.sink.in_words)

    @property
    def only_spark_connects(self) -> bool:
        """Whether Tailrace's own client cannot ask for the sources."""
        return None in self._configs

    def sources(self) -> list[Partitions] | None:
        """The partitions of each source's topics, or None where only Spark can ask.

        Raises:
            KafkaError: The broker does not answer, has no such topic, or does not let it be read.
            OptionRefused: The starting offsets leave a partition out.
        """
        if None in self._configs:
            return None
        found = [self._source(source, config) for source, config in self._pairs()]
        for source, counts in zip(self.pipeline.sources, found, strict=True):
            self._require(READ, source.options, counts)
        for source, counts in zip(self.pipeline.sources, found, strict=True):
            _require_every_offset(self.pipeline, source, counts)
        return found

    def sources_by(self, spark: SparkSession) -> list[Partitions]:
        """The same, asked through Spark.

        Raises:
            KafkaError: The broker does not answer, has no such topic, or does not let it be read.
            OptionRefused: A source has a pattern, and only Spark can connect to this broker.
        """
        patterns = [source.pattern for source in self.pipeline.sources if source.pattern is not None]
        if patterns:
            raise OptionRefused(
                f"the topics like {patterns[0]!r} cannot be listed",
                why="with a Java key store only Spark can connect, and it lists them only once it runs",
                fix="name the topics: KafkaSource([...])",
            )
        found: list[Partitions] = []
        for source in self.pipeline.sources:
            found.append(kafka_partitions(spark, dict(source.options) | self._address, list(source.topic_names)))
            self._require(READ, source.options, found[-1], spark)
        return found

    def require_sink(self) -> None:
        """See that the topic to write to is there, and may be; those that a column names show only in the data.

        Raises:
            KafkaError: The broker does not answer, has no such topic, or does not let it be written to.
        """
        if self.pipeline.sink.topic is not None and self._sink_config is not None:
            partition_counts(self._sink_config, [self.pipeline.sink.topic])
            self._require(WRITE, self.pipeline.sink.options, [self.pipeline.sink.topic])

    def require_sink_by(self, spark: SparkSession) -> None:
        """The same, asked through Spark, where only Spark can connect."""
        options, topic = dict(self.pipeline.sink.options) | self._address, self.pipeline.sink.topic
        if topic is not None and self._sink_config is None:
            kafka_partitions(spark, options, [topic])
            self._require(WRITE, options, [topic], spark)

    def require_possible_dead_letters(self, spark: SparkSession) -> bool:
        """See that dead letters could be written, without making their topic; return whether it is there.

        Raises:
            KafkaError: Their topic may not be written to; or it is not there, and could not be made.
        """
        topic = self.pipeline.dead_letter_topic
        if topic is None:
            return True
        options = dict(self.pipeline.sink.options) | self._address
        with self._explained(topic):
            try:
                if self._sink_config is None:
                    kafka_partitions(spark, options, [topic])
                else:
                    partition_counts(self._sink_config, [topic])
            except TopicMissing:
                BrokerAccess(options, spark).require_creatable(topic)
                return False
        self._require(WRITE, options, [topic], spark)
        return True

    def sink_limit(self) -> int | None:
        """The sink topic's ``max.message.bytes``; None if each row names its topic, or the broker does not tell."""
        sink = self.pipeline.sink
        if sink.topic is None or sink.topic_column is not None or self._sink_config is None:
            return None
        with contextlib.suppress(KafkaError):
            return topic_facts(self._sink_config, sink.topic).max_message_bytes
        return None

    def require_dead_letters(self, spark: SparkSession, announce: Callable[[str], None] | None) -> None:
        """Make the topic for dead letters where it is not there yet.

        Raises:
            KafkaError: It is not there and cannot be made, or may not be written to.
        """
        topic = self.pipeline.dead_letter_topic
        if topic is None or self.require_possible_dead_letters(spark):
            return
        options = dict(self.pipeline.sink.options) | self._address
        with self._explained(topic):
            if self._sink_config is None:
                made = create_kafka_topic(spark, options, topic)
            else:
                made = self._made_by_us(self._sink_config, topic)
        if made and announce is not None:
            announce(f"Made the topic {topic} for records that cannot be read.")
        self._require(WRITE, options, [topic], spark)

    @contextlib.contextmanager
    def _explained(self, topic: str) -> Iterator[None]:
        """Say of what is refused that it was about the topic for dead letters, and how to do without."""
        try:
            yield
        except KafkaError as refused:
            raise type(refused)(
                f"the dead-letter topic {topic!r} of pipeline {self.pipeline.name!r} cannot be used",
                why=refused.why or refused.what,
                fix="; or ".join(filter(None, [refused.fix, _WITHOUT_DEAD_LETTERS])),
                detail=refused.detail,
            ) from refused

    def _require(
        self, operation: str, options: Mapping[str, str], topics: Iterable[str], spark: SparkSession | None = None
    ) -> None:
        access = BrokerAccess(dict(options) | self._address, spark)
        self.rights_unknown |= set(access.require(operation, sorted(topics)))

    def _made_by_us(self, config: ClientConfig, topic: str) -> bool:
        """Make a topic; return False where another process made it in the meantime."""
        try:
            return create_topic(config, topic, 1)
        except KafkaError:
            if topic in list_topics(config):
                return False
            raise

    def require_fitting_records(self, sources: Sequence[Partitions], schemas: Sequence[StructType]) -> None:
        """Look at the newest records of each source and refuse a schema that fits none of them."""
        for (source, config), counts, schema in zip(self._pairs(), sources, schemas, strict=True):
            if config is not None:
                require_fitting_records(config, source, sorted(counts), schema)

    def bound(self, sources: Sequence[Partitions], *, alone: bool) -> Bound:
        """The end of a bounded run: where each source's topics end now.

        Raises:
            OptionRefused: Only Spark can connect to this broker.
        """
        pairs: list[tuple[KafkaSource, ClientConfig, Partitions]] = []
        for (source, config), counts in zip(self._pairs(), sources, strict=True):
            if config is None:
                raise OptionRefused(
                    f"pipeline {self.pipeline.name!r} cannot be run once in real time",
                    why="with a Java key store only Spark can connect, so nobody can say where its topics end",
                    fix="--mode microbatch",
                )
            pairs.append((source, config, counts))
        ends = [
            visible_ends(config, counts, committed=source.options.get(_ISOLATION) == "read_committed")
            for source, config, counts in pairs
        ]
        return Bound(ends, alone)

    @property
    def _address(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._servers}

    def _pairs(self) -> list[tuple[KafkaSource, ClientConfig | None]]:
        return list(zip(self.pipeline.sources, self._configs, strict=True))

    def _source(self, source: KafkaSource, config: ClientConfig | None) -> Partitions:
        if config is None:
            raise AssertionError("asked only where every source has a client")
        if source.pattern is None:
            return partition_counts(config, source.topic_names)
        found = matching(list_topics(config), source.pattern)
        if not found:
            unseen = f"; it does not list what {user_of(config)} may not describe" if "sasl.username" in config else ""
            raise TopicMissing(
                f"no topic is named like {source.pattern!r}",
                why=f"the broker lists no such topic, and real time gives each partition a task when it starts{unseen}",
                fix="make the topic first, or correct the pattern",
            )
        return found


def from_the_beginning(pipeline: Pipeline) -> Pipeline:
    """The pipeline with sources that begin with what is there instead of what comes next."""
    sources = tuple(
        dataclasses.replace(source, starting="earliest") if source.starting == "latest" else source
        for source in pipeline.sources
    )
    return dataclasses.replace(pipeline, source=sources)


def _require_every_offset(pipeline: Pipeline, source: KafkaSource, counts: Partitions) -> None:
    """Refuse starting offsets that leave a partition out, as Spark would once it runs."""
    if not isinstance(source.starting, Mapping):
        return
    missing = first_missing_partitions(source.starting_options["startingOffsets"], counts)
    if missing:
        raise OptionRefused(
            f"starting= of pipeline {pipeline.name!r} says nothing about {', '.join(missing)}",
            why="Spark wants an offset for every partition of every topic",
            fix="add them; -2 is the earliest and -1 the latest offset",
        )
