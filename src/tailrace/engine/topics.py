"""Ask brokers through Spark's own Kafka client."""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tailrace.conditions.kafka import java_cause
from tailrace.engine.gateway import jvm_of
from tailrace.errors import BrokerUnreachable, KafkaError, NotAuthorized, TopicMissing
from tailrace.kafka.cause import Cause
from tailrace.kafka.client import client_identity
from tailrace.kafka.failures import broker_error
from tailrace.kafka.reachable import ANSWER_TIMEOUT_S
from tailrace.kafka.rights import ASK_TIMEOUT_S, Rights
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
            answer = _result(spark, admin.describeTopics(list(topics)).allTopicNames(), 5)
            return {topic: int(answer.get(topic).partitions().size()) for topic in topics}
    except NotAuthorized as unseen:
        raise topic_not_visible(topics, client_identity(options)) from unseen


def kafka_topic_rights(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, Rights]:
    """Return what the user of these options may do with existing topics.

    Raises:
        KafkaError: The broker refuses the connection or the login.
    """
    with _kafka_admin(spark, options) as admin:
        ask = _options(spark, "DescribeTopics", ASK_TIMEOUT_S).includeAuthorizedOperations(True)
        answers = admin.describeTopics(list(topics), ask).topicNameValues()
        return {topic: _rights(spark, answers.get(topic)) for topic in topics}


def kafka_group_rights(spark: SparkSession, options: Mapping[str, str], group: str) -> Rights:
    """Return what the user of these options may do with a consumer group.

    Raises:
        KafkaError: The broker refuses the connection or the login.
    """
    with _kafka_admin(spark, options) as admin:
        ask = _options(spark, "DescribeConsumerGroups", ASK_TIMEOUT_S).includeAuthorizedOperations(True)
        answers = admin.describeConsumerGroups([group], ask).describedGroups()
        return _rights(spark, answers.get(group))


def _rights(spark: SparkSession, answer: Any) -> Rights:
    """Return the operations in an answer: none if it denies the request, None if the broker does not report them."""
    try:
        operations = _result(spark, answer, 2 * ASK_TIMEOUT_S).authorizedOperations()
    except (PySparkException, Py4JJavaError) as refused:
        cause = java_cause(said_by(refused))
        if cause is not None and cause.kind is not NotAuthorized:
            raise
        return frozenset() if cause is not None else None
    return frozenset(str(each.name()) for each in operations) if operations is not None else None


def create_kafka_topic(
    spark: SparkSession, options: Mapping[str, str], topic: str, *, validate_only: bool = False
) -> bool:
    """Create a topic; return False if it exists.

    Raises:
        BrokerUnreachable: It did not answer.
        KafkaError: The broker refuses to create the topic; or, with ``validate_only``, would refuse.
    """
    with _kafka_admin(spark, options) as admin:
        if _result(spark, admin.listTopics().names(), 5).contains(topic):
            return False
        jvm = jvm_of(spark)
        by_default = jvm.java.util.Optional.empty()
        kinds = jvm.org.apache.kafka.clients.admin
        request = kinds.NewTopic(topic, by_default, by_default)
        how = kinds.CreateTopicsOptions().validateOnly(validate_only)
        _result(spark, admin.createTopics([request], how).all(), 15)
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
        raise unanswered({}, failed) from failed
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


class SparkBrokerPing:
    """Spark's Kafka admin client, kept connected so that each ping is one small request; it must be closed.

    For brokers that only the Java client can reach; see :class:`tailrace.kafka.reachable.BrokerPing` for the others.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._options = options
        self._admin: Any = None

    def ask(self) -> KafkaError | None:
        """Ask for the cluster's id; return None if a broker responds, or the error if none does.

        An answer counts even if it denies the request.

        Raises:
            Py4JError: Spark's JVM does not respond.
        """
        try:
            self._ask()
        except (PySparkException, Py4JJavaError) as failed:
            problem = unanswered(self._options, failed)
            if isinstance(problem, NotAuthorized):
                return None
            if not isinstance(problem, BrokerUnreachable):
                self.close()  # it would repeat the refusal for minutes without asking again
            return problem
        return None

    def _ask(self) -> None:
        if self._admin is None:
            self._admin = _open_admin(self._spark, self._options)
        ask = _options(self._spark, "DescribeCluster", ANSWER_TIMEOUT_S)
        _result(self._spark, self._admin.describeCluster(ask).clusterId(), 2 * ANSWER_TIMEOUT_S)

    def close(self) -> None:
        """Disconnect; the next ping connects again."""
        admin, self._admin = self._admin, None
        if admin is not None:
            _close_admin(self._spark, admin)


@contextlib.contextmanager
def _kafka_admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Yield Spark's Kafka admin client; its errors become errors about the broker."""
    try:
        admin = _open_admin(spark, options)
    except (PySparkException, Py4JError) as refused:
        raise unanswered(options, refused) from refused
    try:
        yield admin
    except (PySparkException, Py4JError) as failed:
        raise unanswered(options, failed) from failed
    finally:
        _close_admin(spark, admin)


def _open_admin(spark: SparkSession, options: Mapping[str, str]) -> Any:
    return jvm_of(spark).org.apache.spark.sql.kafka010.tailrace.TopicIds.connect(dict(options))


def _close_admin(spark: SparkSession, admin: Any) -> None:
    admin.close(jvm_of(spark).java.time.Duration.ZERO)


def _options(spark: SparkSession, request: str, timeout_s: float) -> Any:
    """Return Kafka's options for a request that may take so long."""
    kinds = jvm_of(spark).org.apache.kafka.clients.admin
    return getattr(kinds, f"{request}Options")().timeoutMs(int(1000 * timeout_s))


def _result(spark: SparkSession, answer: Any, timeout_s: float) -> Any:
    """Wait for the answer to a request."""
    return answer.get(int(1000 * timeout_s), jvm_of(spark).java.util.concurrent.TimeUnit.MILLISECONDS)


def unanswered(options: Mapping[str, str], failed: Exception) -> KafkaError:
    """Return the error for a broker that does not respond; it names no options, which may hold secrets."""
    said = said_by(failed)
    reason = said.strip().splitlines()[0]
    if "UnknownTopicOrPartition" in said:
        return TopicMissing(
            "a topic of this source does not exist", why=reason, fix="create the topic, or correct its name"
        )
    return broker_error(client_identity(options), java_cause(said) or Cause(BrokerUnreachable, reason))


def said_by(failed: Exception) -> str:
    """Return the messages of a Java exception and its causes, a line each."""
    cause = getattr(failed, "java_exception", None)
    lines: list[str] = []
    while cause is not None and len(lines) < _DEEPEST:
        lines.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(lines) or str(failed)
