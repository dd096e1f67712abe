"""Topics, asked for through Spark's own Kafka client."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engine.gateway import jvm_of
from tailrace.errors import KafkaError, TopicMissing
from tailrace.kafka.client import java_client_options
from tailrace.kafka.topics import unreachable


def kafka_partitions(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has, asked through Spark's own Kafka client.

    For brokers that only the Java client can reach, such as those behind a Java key store.

    Raises:
        BrokerUnreachable: It did not answer.
        TopicMissing: It does not have a topic.
    """
    with _kafka_admin(spark, options) as admin:
        answer = admin.describeTopics(list(topics)).allTopicNames().get(5, _seconds(spark))
        return {topic: int(answer.get(topic).partitions().size()) for topic in topics}


def create_kafka_topic(spark: SparkSession, options: Mapping[str, str], topic: str) -> bool:
    """Make a topic through Spark's own Kafka client; return False where it is there already.

    Raises:
        BrokerUnreachable: It did not answer, or did not make it.
    """
    with _kafka_admin(spark, options) as admin:
        if admin.listTopics().names().get(5, _seconds(spark)).contains(topic):
            return False
        jvm = jvm_of(spark)
        by_default = jvm.java.util.Optional.empty()
        request = jvm.org.apache.kafka.clients.admin.NewTopic(topic, by_default, by_default)
        admin.createTopics([request]).all().get(15, _seconds(spark))
    return True


@contextlib.contextmanager
def _kafka_admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Spark's own Kafka client for questions about topics; what it refuses is an error about the broker."""
    jvm = jvm_of(spark)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(java_client_options(options))
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
    """The error for a broker that gave Spark's Kafka client no answer; options hold secrets, so none is repeated."""
    java_error = getattr(failed, "java_exception", None)
    reason = str(java_error.toString() if java_error is not None else failed).strip().splitlines()[0]
    if "UnknownTopicOrPartition" in reason:
        return TopicMissing("a topic of this source does not exist", why=reason, fix="make it, or correct its name")
    return unreachable(options.get("kafka.bootstrap.servers", "the given address"), reason)
