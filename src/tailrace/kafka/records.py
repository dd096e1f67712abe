"""The records of a topic: sending some, and reading what is there or what comes."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as KafkaErrorCode

from tailrace.errors import KafkaError
from tailrace.kafka.rights import READ, WRITE, not_authorized
from tailrace.kafka.topics import ClientConfig, log_ends, partition_counts

_PRODUCER = {
    # As Java's clients place a key, Spark's among them; librdkafka by itself would choose another partition.
    "partitioner": "murmur2_random",
    # A person waits for the answer: long before librdkafka's own five minutes.
    "message.timeout.ms": 10_000,
}
_CONSUMER = {
    "group.id": "tailrace-read",
    "enable.auto.commit": False,
    # Where old records are deleted while they are read, go on with the oldest that is left.
    "auto.offset.reset": "earliest",
}
_POLL_S = 0.2
"""How long Ctrl-C may go unheard; a record is there at once."""


@dataclass(frozen=True)
class TopicRecord:
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def as_text(data: bytes | None) -> str | None:
    """Bytes for a person: UTF-8, and what is none as backslash escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def send_records(config: ClientConfig, topic: str, values: Iterable[bytes], key: bytes | None = None) -> int:
    """Send each value as a record; return how many the broker has taken.

    Raises:
        BrokerUnreachable: No broker answered in time.
        TopicMissing: The topic is not there.
        NotAuthorized: This user may not write to the topic.
        KafkaError: The broker did not take all of them.
    """
    partition_counts(config, [topic])
    sending = _Sending(config, topic, key)
    try:
        for value in values:
            if not sending.send(value):
                break
    finally:
        # Also where the values end with Ctrl-C: what was handed over is delivered, or known not to be.
        sending.finish()
    return sending.taken


class _Sending:
    """Records on their way to a topic."""

    def __init__(self, config: ClientConfig, topic: str, key: bytes | None) -> None:
        self._config = config
        self._producer = Producer({**config, **_PRODUCER})
        self._topic = topic
        self._key = key
        self._refused: KafkaErrorCode | None = None
        self.taken = 0

    def send(self, value: bytes) -> bool:
        """Hand one record over; return False where it, or one before it, was refused."""
        while self._refused is None:
            try:
                self._producer.produce(self._topic, value, key=self._key, on_delivery=self._note)
            except BufferError:
                # The broker is behind: wait for room.
                self._producer.poll(_POLL_S)
            except KafkaException as refused:
                self._refused = refused.args[0]
            else:
                self._producer.poll(0)
                return True
        return False

    def finish(self) -> None:
        """Wait for the broker's answers; raise if one of them is no."""
        self._producer.flush()  # ends: each record is delivered or given up in time
        if self._refused is not None and self._refused.code() == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise not_authorized(WRITE, self._topic, self._config)
        if self._refused is not None:
            raise KafkaError(
                f"topic {self._topic!r} took {self.taken:,} of the records, then no more",
                why=self._refused.str(),
                fix="correct the record, or look whether the broker is well, and send the rest again",
            )

    def _note(self, refused: KafkaErrorCode | None, _record: Message) -> None:
        if refused is None:
            self.taken += 1
        elif self._refused is None:
            self._refused = refused


def read_records(
    config: ClientConfig, topic: str, *, starting: str = "earliest", count: int | None = None, follow: bool = False
) -> Generator[TopicRecord]:
    """The records of a topic; where it begins and ends is settled when this returns.

    Args:
        config: The Kafka client's settings.
        topic: The topic.
        starting: ``"earliest"``, or ``"latest"`` for what comes from now on.
        count: Ends after so many records and waits for them, if need be.
        follow: Waits for more for ever. With neither, it ends where the topic ends now.

    Raises:
        BrokerUnreachable: No broker answered in time.
        TopicMissing: The topic is not there.
        NotAuthorized: This user may not read the topic.
        KafkaError: The topic cannot be read.
    """
    ends = log_ends(config, partition_counts(config, [topic]))[topic]
    begin = ends if starting == "latest" else dict.fromkeys(ends, OFFSET_BEGINNING)
    return _records(config, topic, begin, None if follow or count is not None else ends, count)


def _records(
    config: ClientConfig, topic: str, begin: Mapping[int, int], until: Mapping[int, int] | None, count: int | None
) -> Generator[TopicRecord]:
    failures: list[KafkaErrorCode] = []
    settings = {"enable.partition.eof": until is not None, "error_cb": failures.append}
    consumer = Consumer({**config, **_CONSUMER, **settings})
    left = set(begin)
    given = 0
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in begin.items()])
        while left and given != count:
            message = consumer.poll(_POLL_S)
            if failures:
                # Also comes from one of several addresses of a broker that is well: the broker itself is asked.
                failures.clear()
                partition_counts(config, [topic])
            if message is None:
                continue
            failed = message.error()
            if failed is not None and failed.code() == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:
                continue  # it joins no group, and commits nothing
            record = _record(message, config)
            if record is None:
                left.discard(int(message.partition() or 0))
                continue
            # What comes while it reads is not what was there: without this, a busy topic would never end.
            if until is None or record.offset < until[record.partition]:
                given += 1
                yield record
            if until is not None and record.offset + 1 >= until[record.partition]:
                left.discard(record.partition)
    finally:
        consumer.close()


def topic_record(message: Message) -> TopicRecord:
    """A message that was polled without an error, as plain data."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    headers = tuple((name, _bytes(value)) for name, value in pairs)
    place = int(message.partition() or 0), int(message.offset() or 0)
    return TopicRecord(str(message.topic()), *place, _bytes(message.key()), _bytes(message.value()), headers)


def _record(message: Message, config: ClientConfig) -> TopicRecord | None:
    """What was polled; None for the end of a partition."""
    topic = str(message.topic())
    failed = message.error()
    if failed is None:
        return topic_record(message)
    if failed.code() == KafkaErrorCode._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
        return None
    partition_counts(config, [topic])  # says it better where the topic, or the broker, is gone
    if failed.code() == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise not_authorized(READ, topic, config)
    raise KafkaError(f"topic {topic!r} cannot be read", why=failed.str(), fix="look whether the broker is well")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
