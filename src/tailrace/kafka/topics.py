"""Asking a broker about its topics, making and removing them."""

import difflib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from tailrace.errors import BrokerUnreachable, KafkaError, NotAuthorized, TopicExists, TopicMissing, counted
from tailrace.kafka import failures
from tailrace.kafka.admin import asking
from tailrace.kafka.failures import broker_error, librdkafka_cause, user_of
from tailrace.kafka.rights import topic_rights

ASK_TIMEOUT_S = 2.0
"""How long a broker may take to answer. An unreachable one must be known within 5 s."""
_OFFSETS_TIMEOUT_S = 10.0
"""Longer: a partition that was made a moment ago has no leader yet, and the client asks again until it has."""

_KNOWN_WITHIN_S = 15.0
ClientConfig: TypeAlias = failures.ClientConfig
Offsets: TypeAlias = dict[str, dict[int, int]]
"""Topics, partitions, offsets."""


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
            raise _topic_missing(topic, existing, config, unseen=_unseen(config, topic))
        counts[topic] = existing[topic]
    return counts


def list_topics(config: ClientConfig) -> dict[str, int]:
    """Every topic that is not Kafka's own, with its number of partitions."""
    return {name: count for name, count in sorted(_metadata(config).items()) if not name.startswith("__")}


def matching(topics: Mapping[str, int], pattern: str) -> dict[str, int]:
    """The topics whose whole name a regular expression matches."""
    wanted = re.compile(pattern)
    return {name: count for name, count in topics.items() if wanted.fullmatch(name)}


def create_topic(config: ClientConfig, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
    """Make a topic; return False where one with as many partitions is there already."""
    existing = _metadata(config)
    if name in existing:
        if existing[name] == partitions:
            return False
        raise TopicExists(
            f"topic {name!r} exists with {counted(existing[name], 'partition')}, not {partitions}",
            fix=f"use another name, or --partitions {existing[name]}",
        )
    # -1: as many replicas as the brokers make by default.
    request = NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(settings or {}))
    with asking(config) as admin:
        _require_done(config, admin.create_topics([request], operation_timeout=10)[name], f"make topic {name!r}")
    _wait_until_known(config, name)
    return True


def delete_topics(config: ClientConfig, names: Iterable[str]) -> None:
    """Remove topics, records and all."""
    with asking(config) as admin:
        for name, done in admin.delete_topics(list(names), operation_timeout=10).items():
            _require_done(config, done, f"remove topic {name!r}")


def _require_done(config: ClientConfig, asked: Future[None], what: str) -> None:
    address = _address(config)
    try:
        asked.result(15)
    except KafkaException as refused:
        cause = librdkafka_cause(config, refused.args[0])
        what = f"may not {what} at {address}" if cause.kind is NotAuthorized else f"could not {what} at {address}"
        fix = "ask whoever runs the broker for the right (kafka-acls --add)" if cause.kind is NotAuthorized else ""
        raise cause.kind(f"{user_of(config)} {what}", why=cause.why, fix=fix) from refused
    except TimeoutError as late:
        raise BrokerUnreachable(f"the broker at {address} did not {what}", why="it did not answer in time") from late


def _wait_until_known(config: ClientConfig, name: str) -> None:
    """Wait for a new topic to be told of: the controller has made it before the broker knows."""
    deadline = time.monotonic() + _KNOWN_WITHIN_S
    while name not in _metadata(config):
        if time.monotonic() > deadline:
            raise BrokerUnreachable(
                f"the broker at {_address(config)} made topic {name!r} and does not know it",
                why=f"it was not told of for {_KNOWN_WITHIN_S:g} s",
            )
        time.sleep(0.05)


def newest_records(config: ClientConfig, topics: Sequence[str], per_partition: int) -> list[bytes]:
    """The values of the last records of every partition of the topics, for a look at what they hold."""
    counts = partition_counts(config, topics)
    beside: list[KafkaErrorCode] = []
    consumer = Consumer({**config, "group.id": "tailrace-look", "enable.auto.commit": False, "error_cb": beside.append})
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
        raise broker_error(config, librdkafka_cause(config, failed.args[0], beside)) from failed
    finally:
        consumer.close()


@dataclass(frozen=True)
class TopicFacts:
    """What a broker says of a topic."""

    settings: Mapping[str, str]
    """Those that somebody chose, for the topic or for all topics of the broker."""
    replicas: int
    """How many brokers keep a copy of its records."""
    max_message_bytes: int | None = None
    """The largest batch of records that it takes, whoever chose that; None if it is not known."""


def topic_facts(config: ClientConfig, topic: str) -> TopicFacts:
    """Ask for a topic's settings and replicas.

    Raises:
        TopicMissing: There is no such topic.
        BrokerUnreachable: No broker answered in time.
    """
    with asking(config) as admin:
        # All of them: asked for one that is not there, a broker may make it.
        found = admin.list_topics(timeout=ASK_TIMEOUT_S).topics.get(topic)
        if found is None:
            raise _topic_missing(topic, {}, config)
        (answer,) = admin.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic)], request_timeout=ASK_TIMEOUT_S
        ).values()
        entries = answer.result(2 * ASK_TIMEOUT_S).values()
    by_nobody = ConfigSource.DEFAULT_CONFIG.value
    chosen = {entry.name: entry.value for entry in entries if entry.source != by_nobody and entry.value is not None}
    replicas = min((len(each.replicas) for each in found.partitions.values()), default=0)
    largest = next((entry.value for entry in entries if entry.name == "max.message.bytes"), None)
    return TopicFacts(chosen, replicas, int(largest) if largest is not None else None)


def log_ends(config: ClientConfig, counts: Mapping[str, int]) -> Offsets:
    """The offset that the next record of every partition will have.

    Raises:
        BrokerUnreachable: No broker answered in time.
    """
    return _offsets(config, counts, OffsetSpec.latest())  # type: ignore[no-untyped-call]


def visible_ends(config: ClientConfig, counts: Mapping[str, int], *, committed: bool = False) -> Offsets:
    """The offset after the last record that a consumer can see now, of every partition of the topics.

    It may lie before the log's end, which also counts what marks the end of a transaction. With ``committed`` records
    of a transaction that is still open, or was aborted, are not seen.

    Raises:
        BrokerUnreachable: No broker answered in time.
    """
    ends, starts = log_ends(config, counts), _offsets(config, counts, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    beside: list[KafkaErrorCode] = []
    settings = {
        "group.id": "tailrace-look",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "error_cb": beside.append,
    }
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer({**config, **settings, "fetch.wait.max.ms": 10, "isolation.level": isolation})
    found = {topic: dict(partitions) for topic, partitions in starts.items()}
    unknown = {
        (topic, partition): 1
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
        if end > starts[topic][partition]
    }
    try:
        while unknown:
            # Most often the last record is the last entry; only after a transaction one has to look further back.
            begin = {
                (topic, partition): max(ends[topic][partition] - back, starts[topic][partition])
                for (topic, partition), back in unknown.items()
            }
            for (topic, partition), last in _last_offsets(consumer, begin, ends).items():
                if last is not None:
                    found[topic][partition] = last + 1
                if last is not None or begin[topic, partition] == starts[topic][partition]:
                    del unknown[topic, partition]
                else:
                    unknown[topic, partition] *= 100
    except KafkaException as failed:
        raise broker_error(config, librdkafka_cause(config, failed.args[0], beside)) from failed
    finally:
        consumer.close()
    return found


def _offsets(config: ClientConfig, counts: Mapping[str, int], spec: OffsetSpec) -> Offsets:
    asked = {TopicPartition(topic, number): spec for topic, count in counts.items() for number in range(count)}
    found: Offsets = {topic: {} for topic in counts}
    with asking(config) as admin:
        # A client that knows the brokers already: a fresh one now and then takes seconds to ask its first question.
        admin.list_topics(timeout=ASK_TIMEOUT_S)
        for place, answer in admin.list_offsets(asked, request_timeout=_OFFSETS_TIMEOUT_S).items():
            found[place.topic][place.partition] = answer.result(2 * _OFFSETS_TIMEOUT_S).offset
    return found


def _last_offsets(
    consumer: Consumer, begin: Mapping[tuple[str, int], int], ends: Offsets
) -> dict[tuple[str, int], int | None]:
    """The offset of the last record of each partition from where it begins; nothing after its end counts."""
    consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in begin.items()])
    last: dict[tuple[str, int], int | None] = dict.fromkeys(begin)
    open_ones = set(begin)
    while open_ones:
        record = consumer.poll(ASK_TIMEOUT_S)
        if record is None:
            raise KafkaException(KafkaErrorCode(KafkaErrorCode._TIMED_OUT))  # noqa: SLF001
        place = (str(record.topic()), int(record.partition() or 0))
        failed = record.error()
        if failed is None:
            offset = int(record.offset() or 0)
            end = ends[place[0]][place[1]]
            if offset < end:
                last[place] = offset
            if offset + 1 >= end:
                open_ones.discard(place)
        elif failed.code() == KafkaErrorCode._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
            open_ones.discard(place)
        elif failed.code() != KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:  # it joins no group, and commits nothing
            raise KafkaException(failed)
    return last


def first_missing_partitions(starting: str, counts: Mapping[str, int]) -> list[str]:
    """The ``topic-partition`` names that an offsets JSON leaves out; Spark demands every one of them."""
    offsets = json.loads(starting)
    return [
        f"{topic}-{partition}"
        for topic, count in counts.items()
        for partition in range(count)
        if str(partition) not in offsets.get(topic, {})
    ]


def _metadata(config: ClientConfig) -> dict[str, int]:
    """Topic names with their numbers of partitions."""
    with asking(config) as admin:
        listing = admin.list_topics(timeout=ASK_TIMEOUT_S)
    return {name: len(topic.partitions) for name, topic in listing.topics.items() if topic.error is None}


def _unseen(config: ClientConfig, topic: str) -> bool | None:
    """Whether the broker keeps a topic from this client, be there one or not; None if it does not say."""
    try:
        return topic_rights(config, [topic])[topic] == frozenset()
    except KafkaError:
        return None if "sasl.username" in config or "ssl.certificate.location" in config else False


def _topic_missing(
    topic: str, existing: Mapping[str, int], config: ClientConfig, *, unseen: bool | None = False
) -> TopicMissing:
    """The error for a topic that is not there, with the nearest name that is."""
    if unseen:
        return topic_unseen([topic], config)
    close = difflib.get_close_matches(topic, list(existing), n=1)
    hint = f"did you mean {close[0]!r}? Or make it" if close else "make it"
    hidden = f"; a topic that {user_of(config)} may not describe looks missing, too" if unseen is None else ""
    return TopicMissing(
        f"topic {topic!r} does not exist at {_address(config)}",
        why=f"Tailrace makes no topic by itself: a misspelt name would be read as an empty topic forever{hidden}",
        fix=f"{hint}: tailrace broker topic {topic} --partitions 2 --bootstrap-servers {_address(config)}",
    )


def topic_unseen(topics: Sequence[str], config: ClientConfig) -> TopicMissing:
    """The error for a topic that is not there, or that the broker keeps from this user."""
    user, named = user_of(config), " or ".join(map(repr, topics))
    return TopicMissing(
        f"topic {named} does not exist at {_address(config)}, or {user} may not see it",
        why=f"{user} lacks DESCRIBE on it: to such a user the broker does not say whether a topic exists",
        fix=f"correct the name, or grant {user} the right: "
        f"kafka-acls --add --allow-principal User:NAME --operation Describe --topic {topics[0]}",
    )


def _address(config: ClientConfig) -> str:
    return str(config["bootstrap.servers"])
