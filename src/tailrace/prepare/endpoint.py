"""How a source or a sink reaches its brokers: by Tailrace's own Kafka client, or through Spark if only Spark connects.

librdkafka cannot read a Java keystore (JKS) or use Kerberos, so such brokers are asked through Spark once it runs.

The permissions that a query needs: DESCRIBE for Spark's driver, which describes topics and lists their offsets; READ,
which includes DESCRIBE, for the tasks, which fetch; WRITE for the producer. It needs none on the cluster since Kafka
2.8, and none on a consumer group, because tasks assign partitions to themselves and commit nothing, unless the driver
fetches offsets like Spark 3.0.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tailrace.engine import create_kafka_topic, kafka_group_rights, kafka_partitions, kafka_topic_rights
from tailrace.errors import KafkaError
from tailrace.kafka.client import client_config, client_identity
from tailrace.kafka.rights import (
    READ,
    WRITE,
    Rights,
    group_rights,
    not_authorized,
    require_creatable,
    require_rights,
    topic_rights,
)
from tailrace.kafka.topics import (
    ClientConfig,
    Offsets,
    TopicFacts,
    create_topic,
    list_topics,
    matching,
    partition_counts,
    topic_facts,
    visible_ends,
)

SERVERS = "kafka.bootstrap.servers"
JOINS_GROUP = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
UNKNOWN_TOPIC = TopicFacts({}, 0)
_GROUP_PREFIX = "spark-kafka-source"
_ISOLATION = "kafka.isolation.level"


@dataclass(frozen=True)
class Endpoint:
    """The connection of one source or sink.

    Attributes:
        options: The options of Spark's connector, by lower-case name, with the brokers' address.
        spark: Asks if Tailrace's own client cannot connect; None if Spark is not running yet.
    """

    options: Mapping[str, str]
    spark: SparkSession | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], spark: SparkSession | None = None) -> "Endpoint":
        """Return the endpoint for connector options, which Spark compares without case."""
        return cls({key.lower(): value for key, value in options.items()}, spark)

    @property
    def config(self) -> ClientConfig | None:
        """The settings of Tailrace's own client; None if only Spark can connect."""
        return client_config(self.options.get(SERVERS, ""), self.options)

    @property
    def answers(self) -> bool:
        """Whether the brokers can be asked now."""
        return self.config is not None or self.spark is not None

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Return the number of partitions of each topic; nothing if the brokers cannot be asked yet.

        Raises:
            KafkaError: The broker does not respond, or has no such topic.
        """
        config = self.config
        if config is not None:
            return partition_counts(config, topics)
        return kafka_partitions(self.spark, self.options, topics) if self.spark is not None else {}

    def source_partitions(self) -> dict[str, int] | None:
        """Return the partitions that a source with these options reads; None if that cannot be asked.

        Raises:
            KafkaError: The broker does not respond, or has no such topic.
        """
        config = self.config
        if "assign" in self.options:
            assigned = json.loads(self.options["assign"])
            self.partitions(list(assigned))
            return {topic: len(partitions) for topic, partitions in assigned.items()}
        if "subscribepattern" in self.options:
            # Spark lists the topics of a pattern only when the query runs.
            return matching(list_topics(config), self.options["subscribepattern"]) if config is not None else None
        subscribed = [name.strip() for name in self.options.get("subscribe", "").split(",")]
        return self.partitions(subscribed) if self.answers else None

    def require(self, operation: str, topics: Sequence[str]) -> list[str]:
        """Require that existing topics may be read or written.

        Returns:
            The topics whose permissions the broker does not report.

        Raises:
            NotAuthorized: The user may not use one of them.
        """
        return require_rights(self.identity, operation, self.rights(topics))

    def rights(self, topics: Sequence[str]) -> dict[str, Rights]:
        """Return what the user may do with existing topics; nothing if the brokers cannot be asked yet."""
        config = self.config
        if config is not None:
            return topic_rights(config, topics)
        return kafka_topic_rights(self.spark, self.options, topics) if self.spark is not None else {}

    @property
    def identity(self) -> ClientConfig:
        """The user and the brokers, for errors."""
        return self.config or client_identity(self.options)

    def require_group(self) -> list[str]:
        """Require that the driver may join its consumer group, if it joins one.

        Returns:
            The group, if the broker does not report its permissions.

        Raises:
            NotAuthorized: The user may not use it.
        """
        if self.spark is None or self.spark.conf.get(JOINS_GROUP, "false") != "true":
            return []
        prefix = self.options.get("groupidprefix", _GROUP_PREFIX)
        # Spark adds the rest of the name: a permission on the prefix covers this one, too.
        group = self.options.get("kafka.group.id", f"{prefix}-tailrace-check")
        rights = self._group_rights(self.spark, group)
        require_rights(client_identity(self.options), READ, {group: rights}, group=True)
        return [] if rights is not None else [group]

    def require_creatable(self, topic: str) -> None:
        """Require that a missing topic could be created and then written to, without creating it.

        Raises:
            NotAuthorized: The user may not create it, or could not write to it.
            KafkaError: The broker refuses it for another reason.
        """
        config = self.config
        if config is not None:
            require_creatable(config, topic)
            rights = topic_rights(config, [topic])
        elif self.spark is not None:
            create_kafka_topic(self.spark, self.options, topic, validate_only=True)
            rights = kafka_topic_rights(self.spark, self.options, [topic])
        else:
            return
        if rights[topic] == frozenset():  # WRITE includes DESCRIBE
            raise not_authorized(WRITE, topic, client_identity(self.options), frozenset())

    def create(self, topic: str) -> bool:
        """Create a topic; return False if another process has created it.

        Raises:
            KafkaError: The broker refuses it.
        """
        config = self.config
        if config is None:
            return self.spark is not None and create_kafka_topic(self.spark, self.options, topic)
        try:
            return create_topic(config, topic, 1)
        except KafkaError:
            if topic in list_topics(config):
                return False
            raise

    def facts(self, topic: str) -> TopicFacts:
        """Return the topic's settings and replicas, as far as the broker tells Tailrace's own client."""
        config = self.config
        if config is not None:
            with contextlib.suppress(KafkaError):
                return topic_facts(config, topic)
        return UNKNOWN_TOPIC

    def ends(self, partitions: Mapping[str, int]) -> Offsets | None:
        """Return the end of each partition for a consumer; None if only Spark can connect."""
        config = self.config
        if config is None:
            return None
        return visible_ends(config, partitions, committed=self.options.get(_ISOLATION) == "read_committed")

    def _group_rights(self, spark: SparkSession, group: str) -> Rights:
        config = self.config
        return group_rights(config, group) if config is not None else kafka_group_rights(spark, self.options, group)
