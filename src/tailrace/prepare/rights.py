"""Whether a query's user may use its topics: asked by our own client, or through Spark if only Spark can connect.

Spark's driver describes topics and lists their offsets, which takes DESCRIBE; its tasks fetch, which takes READ and
includes DESCRIBE. Its producer takes WRITE, and no right to the cluster since Kafka 2.8. Tasks assign partitions to
themselves and commit nothing, so that nobody needs a right to a consumer group, unless the driver is told to find
offsets as Spark 3.0 did.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tailrace.engine import create_kafka_topic, kafka_group_rights, kafka_topic_rights
from tailrace.errors import KafkaError, NotAuthorized
from tailrace.kafka.client import client_config, client_identity
from tailrace.kafka.rights import (
    READ,
    WRITE,
    group_rights,
    not_authorized,
    require_creatable,
    require_rights,
    topic_rights,
)

JOINS_GROUP = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
_GROUP_PREFIX = "spark-kafka-source"


@dataclass(frozen=True)
class BrokerAccess:
    """How a source or a sink connects to its brokers.

    Attributes:
        options: The options of Spark's connector, with the brokers' address.
        spark: What asks where our own client cannot connect; None if it is not running yet: then nothing is asked.
    """

    options: Mapping[str, str]
    spark: SparkSession | None = None

    def require(self, operation: str, topics: Sequence[str]) -> list[str]:
        """See that topics that are there may be read, or written to.

        Returns:
            Those of which the broker does not say it.

        Raises:
            NotAuthorized: One of them may not.
        """
        config = self._config
        if config is not None:
            return require_rights(config, operation, topic_rights(config, topics))
        if self.spark is None:
            return []
        rights = kafka_topic_rights(self.spark, self.options, topics)
        return require_rights(client_identity(self.options), operation, rights)

    def require_group(self) -> list[str]:
        """See that the driver may join its consumer group, if it is to join one.

        Raises:
            NotAuthorized: It may not.
        """
        if self.spark is None or self.spark.conf.get(JOINS_GROUP, "false") != "true":
            return []
        given = {key.lower(): value for key, value in self.options.items()}
        prefix = given.get("groupidprefix", _GROUP_PREFIX)
        # Spark makes up the rest of the name: a right to the prefix covers this one as well.
        group = given.get("kafka.group.id", f"{prefix}-tailrace-check")
        config = self._config
        rights = group_rights(config, group) if config is not None else self._group_by_spark(self.spark, group)
        require_rights(client_identity(self.options), READ, {group: rights}, group=True)
        return [] if rights is not None else [group]

    def require_creatable(self, topic: str) -> None:
        """See that a topic that is not there could be made and then written to, without making it.

        Raises:
            NotAuthorized: This user may not make it, or could not write to it.
            KafkaError: The broker would not make it for another reason.
        """
        config = self._config
        if config is not None:
            require_creatable(config, topic)
            unseen = topic_rights(config, [topic])[topic] == frozenset()
        elif self.spark is not None:
            create_kafka_topic(self.spark, self.options, topic, validate_only=True)
            unseen = self._is_unseen(self.spark, topic)
        else:
            return
        if unseen:  # WRITE includes DESCRIBE
            raise not_authorized(WRITE, topic, client_identity(self.options), frozenset())

    def _is_unseen(self, spark: SparkSession, topic: str) -> bool:
        try:
            kafka_topic_rights(spark, self.options, [topic])
        except NotAuthorized:
            return True
        except KafkaError:
            return False
        return False

    @property
    def _config(self) -> dict[str, str | int] | None:
        return client_config(self.options["kafka.bootstrap.servers"], self.options)

    def _group_by_spark(self, spark: SparkSession, group: str) -> frozenset[str] | None:
        return kafka_group_rights(spark, self.options, group)
