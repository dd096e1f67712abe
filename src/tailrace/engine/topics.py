"""Ask brokers through Spark's own Kafka client."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.conditions.kafka import java_cause
from tailrace.engine.gateway import jvm_of
from tailrace.errors import BrokerUnreachable, KafkaError, NotAuthorized, TopicMissing
from tailrace.kafka.cause import Cause
from tailrace.kafka.client import client_identity
from tailrace.kafka.failures import broker_error
from tailrace.kafka.rights import Rights
from tailrace.kafka.topics import topic_not_visible
from tailrace.plan.loss import Loss

_DEEPEST = 20
"""How many causes of an exception are read."""


def kafka_partitions(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, int]:
    """Return the number of partitions of each topic.

    For brokers that only the Java client can reach, such as those behind a Java keystore (JKS).

    Raises:
        BrokerUnreachable: It did not answer.
        TopicMissing: It does not have a topic.
        KafkaError: It refuses the connection, the login or the question.
    """
    try:
        with _kafka_admin(spark, options) as admin:
            answer = admin.describeTopics(list(topics)).allTopicNames().get(5, _seconds(spark))
            return {topic: int(answer.get(topic).partitions().size()) for topic in topics}
    except NotAuthorized as unseen:
        raise topic_not_visible(topics, client_identity(options)) from unseen


def kafka_topic_rights(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, Rights]:
    """Return what the user of these options may do with existing topics."""
    with _kafka_admin(spark, options) as admin:
        ask = jvm_of(spark).org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
        answer = admin.describeTopics(list(topics), ask).allTopicNames().get(5, _seconds(spark))
        return {topic: _rights(answer.get(topic).authorizedOperations()) for topic in topics}


def kafka_group_rights(spark: SparkSession, options: Mapping[str, str], group: str) -> Rights:
    """Return what the user of these options may do with a consumer group."""
    with _kafka_admin(spark, options) as admin:
        kinds = jvm_of(spark).org.apache.kafka.clients.admin
        ask = kinds.DescribeConsumerGroupsOptions().includeAuthorizedOperations(True)
        try:
            answer = admin.describeConsumerGroups([group], ask).all().get(5, _seconds(spark))
        except (PySparkException, Py4JError) as refused:
            return frozenset() if "GroupAuthorizationException" in _said(refused) else None
        return _rights(answer.get(group).authorizedOperations())


def _rights(operations: Any) -> Rights:
    return frozenset(str(each.name()) for each in operations) if operations is not None else None


def create_kafka_topic(
    spark: SparkSession, options: Mapping[str, str], topic: str, *, validate_only: bool = False
) -> bool:
    """Create a topic; return False if it exists.

    Raises:
        BrokerUnreachable: It did not answer.
        KafkaError: It did not make it; or, with ``validate_only``, would not.
    """
    with _kafka_admin(spark, options) as admin:
        if admin.listTopics().names().get(5, _seconds(spark)).contains(topic):
            return False
        jvm = jvm_of(spark)
        by_default = jvm.java.util.Optional.empty()
        kinds = jvm.org.apache.kafka.clients.admin
        request = kinds.NewTopic(topic, by_default, by_default)
        how = kinds.CreateTopicsOptions().validateOnly(validate_only)
        admin.createTopics([request], how).all().get(15, _seconds(spark))
    return True


def lost_records(frame: DataFrame, location: str, committed: int, starts: Sequence[str]) -> tuple[Loss, ...]:
    """Return the records that a query has not read and that are gone.

    Args:
        frame: What it writes.
        location: Its checkpoint.
        committed: The last batch in the checkpoint.
        starts: The offsets of each source in that batch.

    Raises:
        KafkaError: A broker does not respond, or refuses the question.
    """
    losses = jvm_of(frame.sparkSession).org.apache.spark.sql.kafka010.tailrace.SourceLosses
    try:
        lost = losses.find(frame._jdf, location, committed, list(starts))
    except (PySparkException, Py4JError) as failed:
        raise _unanswered({}, failed) from failed
    return tuple(Loss(**each) for each in json.loads(str(lost)))


class OutputTopics:
    """The topics that a query writes to, by their ids."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], topics: Sequence[str], location: str) -> None:
        """Look at topics.

        Args:
            spark: The session.
            options: The options of the sink.
            topics: The topics.
            location: The checkpoint of the query, which keeps their ids.
        """
        kafka = jvm_of(spark).org.apache.spark.sql.kafka010.tailrace
        self._topics = kafka.OutputTopics(spark._jsparkSession, dict(options), list(topics), location)

    def look(self) -> list[str]:
        """Record the ids of the topics; return the topics that were created again since they were recorded."""
        return [str(topic) for topic in self._topics.look()]

    def close(self) -> None:
        """Close the connection."""
        self._topics.close()


@contextlib.contextmanager
def _kafka_admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Yield Spark's Kafka admin client; its errors become errors about the broker."""
    jvm = jvm_of(spark)
    try:
        admin = jvm.org.apache.spark.sql.kafka010.tailrace.TopicIds.connect(dict(options))
    except (PySparkException, Py4JError) as refused:
        raise _unanswered(options, refused) from refused
    try:
        yield admin
    except (PySparkException, Py4JError) as failed:
        raise _unanswered(options, failed) from failed
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _seconds(spark: SparkSession) -> Any:
    return jvm_of(spark).java.util.concurrent.TimeUnit.SECONDS


def _unanswered(options: Mapping[str, str], failed: Exception) -> KafkaError:
    """Return the error for a broker that does not respond; it names no options, which may hold secrets."""
    said = _said(failed)
    reason = said.strip().splitlines()[0]
    if "UnknownTopicOrPartition" in said:
        return TopicMissing("a topic of this source does not exist", why=reason, fix="make it, or correct its name")
    return broker_error(client_identity(options), java_cause(said) or Cause(BrokerUnreachable, reason))


def _said(failed: Exception) -> str:
    """Return the messages of a Java exception and its causes, a line each."""
    cause = getattr(failed, "java_exception", None)
    lines: list[str] = []
    while cause is not None and len(lines) < _DEEPEST:
        lines.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(lines) or str(failed)
