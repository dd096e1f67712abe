"""Asking a broker about its topics, and making them."""

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace.errors import BrokerUnreachable, TopicExists, TopicMissing

ASK_TIMEOUT_S = 2.0
"""How long a broker may take to answer. An unreachable one must be known within 5 s."""

ClientConfig: TypeAlias = Mapping[str, str | int]


def partition_counts(config: ClientConfig, topics: Iterable[str]) -> dict[str, int]:
    """How many partitions each topic has.

    Raises:
        BrokerUnreachable: No broker answered in time.
        TopicMissing: A topic is not there.
    """
    existing = _metadata(config)
    counts: dict[str, int] = {}
    for topic in topics:
        if topic not in existing:
            raise _topic_missing(topic, existing, config)
        counts[topic] = existing[topic]
    return counts


def list_topics(config: ClientConfig) -> dict[str, int]:
    """Every topic that is not Kafka's own, with its number of partitions."""
    return {name: count for name, count in sorted(_metadata(config).items()) if not name.startswith("__")}


def create_topic(config: ClientConfig, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
    """Make a topic; return False where one with as many partitions is there already."""
    existing = _metadata(config)
    if name in existing:
        if existing[name] == partitions:
            return False
        raise TopicExists(
            f"topic {name!r} exists with {existing[name]} partitions, not {partitions}",
            fix=f"use another name, or --partitions {existing[name]}",
        )
    # -1: as many replicas as the brokers make by default.
    request = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(settings or {}))
    admin = AdminClient(dict(config))  # held by name: its answers die with it
    try:
        admin.create_topics([request], operation_timeout=10)[name].result(15)
    except KafkaException as refused:
        raise BrokerUnreachable(
            f"the broker at {_address(config)} did not make topic {name!r}", why=_reason(refused)
        ) from refused
    return True


def newest_records(config: ClientConfig, topics: Sequence[str], per_partition: int) -> list[bytes]:
    """The values of the last records of every partition of the topics, for a look at what they hold."""
    counts = partition_counts(config, topics)
    consumer = Consumer({**config, "group.id": "tailrace-look", "enable.auto.commit": False})
    try:
        assignment, wanted = [], 0
        for topic, partitions in counts.items():
            for partition in range(partitions):
                here = TopicPartition(topic, partition)
                low, high = consumer.get_watermark_offsets(here, timeout=ASK_TIMEOUT_S)
                start = max(low, high - per_partition)
                if high > start:
                    assignment.append(TopicPartition(topic, partition, start))
                    wanted += high - start
        if not assignment:
            return []
        consumer.assign(assignment)
        records = consumer.consume(wanted, timeout=ASK_TIMEOUT_S)
        values = (record.value() for record in records if record.error() is None)
        return [value for value in values if value is not None]
    except KafkaException as failed:
        raise unreachable(_address(config), _reason(failed)) from failed
    finally:
        consumer.close()


def end_offsets(config: ClientConfig, counts: Mapping[str, int]) -> dict[str, dict[int, int]]:
    """The offset after the last record that a consumer can see, of every partition of the topics.

    The broker's own end also counts what marks the end of a transaction, which no consumer ever sees.

    Raises:
        BrokerUnreachable: No broker answered in time.
    """
    asked = {"group.id": "tailrace-look", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**config, **asked})
    try:
        return {
            topic: {partition: _visible_end(consumer, topic, partition) for partition in range(count)}
            for topic, count in counts.items()
        }
    except KafkaException as failed:
        raise unreachable(_address(config), _reason(failed)) from failed
    finally:
        consumer.close()


def _visible_end(consumer: Consumer, topic: str, partition: int) -> int:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_TIMEOUT_S)
    look_back = 1
    while high > low:
        start = max(low, high - look_back)
        consumer.assign([TopicPartition(topic, partition, start)])
        last = _last_offset(consumer)
        if last is not None:
            return last + 1
        if start == low:
            break
        look_back *= 100
    return low


def _last_offset(consumer: Consumer) -> int | None:
    """The offset of the last record from where the consumer stands."""
    last = None
    while (record := consumer.poll(ASK_TIMEOUT_S)) is not None:
        failed = record.error()
        if failed is None:
            last = record.offset()
        elif failed.code() == KafkaErrorCode._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
            return last
        else:
            raise KafkaException(failed)
    raise KafkaException(KafkaErrorCode(KafkaErrorCode._TIMED_OUT))  # noqa: SLF001


def first_missing_partitions(starting: str, counts: Mapping[str, int]) -> list[str]:
    """The ``topic-partition`` names that an offsets JSON leaves out; Spark demands every one of them."""
    offsets = json.loads(starting)
    return [
        f"{topic}-{partition}"
        for topic, count in counts.items()
        for partition in range(count)
        if str(partition) not in offsets.get(topic, {})
    ]


def unreachable(address: str, reason: str) -> BrokerUnreachable:
    """The error for a broker that does not answer."""
    return BrokerUnreachable(
        f"no Kafka broker answers at {address}",
        why=reason,
        fix="check --bootstrap-servers, or start a development broker: tailrace broker start",
    )


def _metadata(config: ClientConfig) -> dict[str, int]:
    """Topic names with their numbers of partitions."""
    try:
        listing = AdminClient(dict(config)).list_topics(timeout=ASK_TIMEOUT_S)
    except KafkaException as failed:
        raise unreachable(_address(config), _reason(failed)) from failed
    return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}


def _topic_missing(topic: str, existing: Mapping[str, int], config: ClientConfig) -> TopicMissing:
    """The error for a topic that is not there, with the nearest name that is."""
    close = difflib.get_close_matches(topic, list(existing), n=1)
    hint = f"did you mean {close[0]!r}? Or make it" if close else "make it"
    return TopicMissing(
        f"topic {topic!r} does not exist at {_address(config)}",
        why="Tailrace makes no topic by itself: a misspelt name would read as an empty one for ever",
        fix=f"{hint}: tailrace broker topic {topic} --partitions 2 --bootstrap-servers {_address(config)}",
    )


def _address(config: ClientConfig) -> str:
    return str(config["bootstrap.servers"])


def _reason(failed: KafkaException) -> str:
    """Librdkafka's own words, without its error object around them."""
    return str(failed.args[0].str()) if failed.args else str(failed)
