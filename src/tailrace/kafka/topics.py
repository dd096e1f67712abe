"""List, create and delete topics, and read their offsets."""

import difflib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from tailrace.errors import BrokerUnreachable, KafkaError, NotAuthorized, TopicExists, TopicMissing, counted
from tailrace.kafka import failures
from tailrace.kafka.admin import admin_client
from tailrace.kafka.failures import ASK_PERMISSION, NO_ANSWER, broker_error, librdkafka_cause, user_of
from tailrace.kafka.rights import topic_rights

ASK_TIMEOUT_S = 2.0
"""How long a broker may take to answer. An unreachable one must be reported within 5 s."""
_OFFSETS_TIMEOUT_S = 10.0
"""Longer, because a new partition has no leader yet and the client retries until it has one."""

_VISIBLE_TIMEOUT_S = 15.0
ClientConfig: TypeAlias = failures.ClientConfig
Offsets: TypeAlias = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


def partition_counts(config: ClientConfig, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of partitions of each topic.

    Raises:
        BrokerUnreachable: No broker responded in time.
        TopicMissing: A topic does not exist.
    """
    existing = _metadata(config)
    counts: dict[str, int] = {}
    for topic in topics:
        if topic not in existing:
            raise _topic_missing(topic, existing, config, hidden=_is_hidden(config, topic))
        counts[topic] = existing[topic]
    return counts


def existing_partitions(config: ClientConfig, topic: str) -> int | None:
    """Return the number of partitions of a topic, or None if it does not exist.

    Raises:
        BrokerUnreachable: No broker responded in time.
        TopicMissing: The broker does not say whether it exists.
    """
    partitions = _metadata(config).get(topic)
    if partitions is None and _is_hidden(config, topic):
        raise topic_not_visible([topic], config)
    return partitions


def topic_id(config: ClientConfig, topic: str) -> str:
    """Return the id of an existing topic; a later topic of the same name has another one."""
    with admin_client(config) as admin:
        admin.list_topics(timeout=ASK_TIMEOUT_S)  # the first request of a new client sometimes takes seconds
        (answer,) = admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_TIMEOUT_S).values()
        return str(answer.result(2 * ASK_TIMEOUT_S).topic_id)


def list_topics(config: ClientConfig) -> dict[str, int]:
    """Return all topics except Kafka's internal ones, with their numbers of partitions."""
    return {name: count for name, count in sorted(_metadata(config).items()) if not name.startswith("__")}


def matching(topics: Mapping[str, int], pattern: str) -> dict[str, int]:
    """Return the topics whose full name matches a regular expression."""
    compiled = re.compile(pattern)
    return {name: count for name, count in topics.items() if compiled.fullmatch(name)}


def create_topic(config: ClientConfig, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
    """Create a topic; return False if it exists with the same number of partitions."""
    existing = _metadata(config)
    if name in existing:
        if existing[name] == partitions:
            return False
        raise TopicExists(
            f"topic {name!r} exists with {counted(existing[name], 'partition')}, not {partitions}",
            fix=f"use another name, or --partitions {existing[name]}",
        )
    # -1: the broker's default number of replicas.
    request = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(settings or {}))
    with admin_client(config) as admin:
        _require_done(config, admin.create_topics([request], operation_timeout=10)[name], f"create topic {name!r}")
    _wait_until_visible(config, name)
    return True


def delete_topics(config: ClientConfig, names: Iterable[str]) -> None:
    """Delete topics with their records."""
    with admin_client(config) as admin:
        for name, done in admin.delete_topics(list(names), operation_timeout=10).items():
            _require_done(config, done, f"delete topic {name!r}")


def _require_done(config: ClientConfig, request: Future[None], what: str) -> None:
    address = _address(config)
    try:
        request.result(15)
    except KafkaException as refused:
        cause = librdkafka_cause(config, refused.args[0])
        what = f"may not {what} at {address}" if cause.kind is NotAuthorized else f"could not {what} at {address}"
        fix = ASK_PERMISSION if cause.kind is NotAuthorized else ""
        raise cause.kind(f"{user_of(config)} {what}", why=cause.why, fix=fix) from refused
    except TimeoutError as late:
        raise BrokerUnreachable(f"the broker at {address} did not {what}", why=NO_ANSWER) from late


def _wait_until_visible(config: ClientConfig, name: str) -> None:
    """Wait until the broker lists a new topic; its controller creates the topic first."""
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    while name not in _metadata(config):
        if time.monotonic() > deadline:
            raise BrokerUnreachable(
                f"the broker at {_address(config)} created topic {name!r} but does not list it",
                why=f"it did not appear within {_VISIBLE_TIMEOUT_S:g} s",
            )
        time.sleep(0.05)


def newest_records(config: ClientConfig, topics: Sequence[str], per_partition: int) -> list[bytes]:
    """Return the values of the last records of each partition, as a sample."""
    counts = partition_counts(config, topics)
    reported: list[KafkaErrorCode] = []
    consumer = Consumer(
        {**config, "group.id": "tailrace-look", "enable.auto.commit": False, "error_cb": reported.append}
    )
    try:
        assignment, wanted = [], 0
        for topic, partitions in counts.items():
            for partition in range(partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_TIMEOUT_S)
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
        raise broker_error(config, librdkafka_cause(config, failed.args[0], reported)) from failed
    finally:
        consumer.close()


@dataclass(frozen=True)
class TopicFacts:
    """The properties of a topic, as the broker reports them."""

    settings: Mapping[str, str]
    """The settings that differ from Kafka's defaults, on the topic or on the broker."""
    replicas: int
    """The replication factor."""
    max_message_bytes: int | None = None
    """The largest record batch that the topic accepts; None if it is not known."""


def topic_facts(config: ClientConfig, topic: str) -> TopicFacts:
    """Return a topic's settings and number of replicas.

    Raises:
        TopicMissing: The topic does not exist.
        BrokerUnreachable: No broker responded in time.
    """
    with admin_client(config) as admin:
        # List all topics: a broker may create a missing topic that is requested by name.
        metadata = admin.list_topics(timeout=ASK_TIMEOUT_S).topics.get(topic)
        if metadata is None:
            raise _topic_missing(topic, {}, config)
        (answer,) = admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic)], request_timeout=ASK_TIMEOUT_S
        ).values()
        entries = answer.result(2 * ASK_TIMEOUT_S).values()
    default = ConfigSource.DEFAULT_CONFIG.value
    chosen = {entry.name: entry.value for entry in entries if entry.source != default and entry.value is not None}
    replicas = min((len(each.replicas) for each in metadata.partitions.values()), default=0)
    largest = next((entry.value for entry in entries if entry.name == "max.message.bytes"), None)
    return TopicFacts(chosen, replicas, int(largest) if largest is not None else None)


def log_ends(config: ClientConfig, counts: Mapping[str, int]) -> Offsets:
    """Return the end offset of every partition: the offset of its next record.

    Raises:
        BrokerUnreachable: No broker responded in time.
    """
    return _offsets(config, counts, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def visible_ends(config: ClientConfig, counts: Mapping[str, int], *, committed: bool = False) -> Offsets:
    """Return, for every partition, the offset after the last record that a consumer can see now.

    It may be lower than the end offset, because transaction markers also take offsets. With ``committed``, records of
    open and aborted transactions are not visible.

    Raises:
        BrokerUnreachable: No broker responded in time.
    """
    ends, starts = log_ends(config, counts), _offsets(config, counts, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    reported: list[KafkaErrorCode] = []
    settings = {
        "group.id": "tailrace-look",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "error_cb": reported.append,
    }
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer({**config, **settings, "fetch.wait.max.ms": 10, "isolation.level": isolation})
    visible = {topic: dict(partitions) for topic, partitions in starts.items()}
    unknown = {
        (topic, partition): 1
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if end > starts[topic][partition]
    }
    try:
        while unknown:
            # Usually the last record is the last log entry; only after a transaction it is further back.
            begin = {
                (topic, partition): max(ends[topic][partition] - back, starts[topic][partition])
                for (topic, partition), back in unknown.items()
            }
            for (topic, partition), last in _last_offsets(consumer, begin, ends).items():
                if last is not None:
                    visible[topic][partition] = last + 1
                if last is not None or begin[topic, partition] == starts[topic][partition]:
                    del unknown[topic, partition]
                else:
                    unknown[topic, partition] *= 100
    except KafkaException as failed:
        raise broker_error(config, librdkafka_cause(config, failed.args[0], reported)) from failed
    finally:
        consumer.close()
    return visible


def _offsets(config: ClientConfig, counts: Mapping[str, int], spec: OffsetSpec) -> Offsets:
    requests = {TopicPartition(topic, number): spec for topic, count in counts.items() for number in range(count)}
    offsets: Offsets = {topic: {} for topic in counts}
    with admin_client(config) as admin:
        # Connect first: the first request of a new client sometimes takes seconds.
        admin.list_topics(timeout=ASK_TIMEOUT_S)
        for partition, answer in admin.list_offsets(requests, request_timeout=_OFFSETS_TIMEOUT_S).items():
            offsets[partition.topic][partition.partition] = answer.result(2 * _OFFSETS_TIMEOUT_S).offset
    return offsets


def _last_offsets(
    consumer: Consumer, begin: Mapping[tuple[str, int], int], ends: Offsets
) -> dict[tuple[str, int], int | None]:
    """Return the last record's offset in each partition between ``begin`` and ``ends``, or None."""
    consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in begin.items()])
    last: dict[tuple[str, int], int | None] = dict.fromkeys(begin)
    unfinished = set(begin)
    while unfinished:
        record = consumer.poll(ASK_TIMEOUT_S)
        if record is None:
            raise KafkaException(KafkaErrorCode(KafkaErrorCode._TIMED_OUT))  # noqa: SLF001
        partition = (str(record.topic()), int(record.partition() or 0))
        failed = record.error()
        if failed is None:
            offset = int(record.offset() or 0)
            end = ends[partition[0]][partition[1]]
            if offset < end:
                last[partition] = offset
            if offset + 1 >= end:
                unfinished.discard(partition)
        elif failed.code() == KafkaErrorCode._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
            unfinished.discard(partition)
        elif failed.code() != KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:  # the consumer joins no group
            raise KafkaException(failed)
    return last


def first_missing_partitions(starting: str, counts: Mapping[str, int]) -> list[str]:
    """Return the ``topic-partition`` names that are missing in an offsets JSON; Spark requires all of them."""
    offsets = json.loads(starting)
    return [
        f"{topic}-{partition}"
        for topic, count in counts.items()
        for partition in range(count)
        if str(partition) not in offsets.get(topic, {})
    ]


def _metadata(config: ClientConfig) -> dict[str, int]:
    """Return all topics with their numbers of partitions."""
    with admin_client(config) as admin:
        listing = admin.list_topics(timeout=ASK_TIMEOUT_S)
    return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}


def _is_hidden(config: ClientConfig, topic: str) -> bool | None:
    """Return whether the broker hides a topic from this client, if it exists; None if that is not known."""
    try:
        return topic_rights(config, [topic])[topic] == frozenset()
    except KafkaError:
        return None if "sasl.username" in config or "ssl.certificate.location" in config else False


def _topic_missing(
    topic: str, existing: Mapping[str, int], config: ClientConfig, *, hidden: bool | None = False
) -> TopicMissing:
    """Return the error for a missing topic, with the most similar existing name."""
    if hidden:
        return topic_not_visible([topic], config)
    close = difflib.get_close_matches(topic, list(existing), n=1)
    hint = f"did you mean {close[0]!r}? Or create it" if close else "create it"
    maybe = f"; a topic that {user_of(config)} may not describe also looks missing" if hidden is None else ""
    return TopicMissing(
        f"topic {topic!r} does not exist at {_address(config)}",
        why=f"Tailrace does not create source or sink topics: a misspelt name would stay an empty topic forever{maybe}",
        fix=f"{hint}: tailrace broker topic {topic} --partitions 2 --bootstrap-servers {_address(config)}",
    )


def topic_not_visible(topics: Sequence[str], config: ClientConfig) -> TopicMissing:
    """Return the error for a topic that does not exist or that the broker hides from this user."""
    user, names = user_of(config), " or ".join(map(repr, topics))
    return TopicMissing(
        f"topic {names} does not exist at {_address(config)}, or {user} may not see it",
        why=f"{user} lacks DESCRIBE on it, so the broker does not say whether it exists",
        fix=f"correct the name, or grant {user} the permission: "
        f"kafka-acls --add --allow-principal User:NAME --operation Describe --topic {topics[0]}",
    )


def _address(config: ClientConfig) -> str:
    return str(config["bootstrap.servers"])
