"""Send records to a topic and read them."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as KafkaErrorCode

from tailrace.errors import KafkaError, counted
from tailrace.kafka.failures import SEE_BROKER_LOG
from tailrace.kafka.rights import READ, WRITE, not_authorized
from tailrace.kafka.topics import ASK_TIMEOUT_S, ClientConfig, log_ends, partition_counts

ANY_PARTITION = -1
_PRODUCER = {
    # The partitioner of Java clients, including Spark's; librdkafka's default maps keys to other partitions.
    "partitioner": "murmur2_random",
    # A person is waiting: librdkafka's default is five minutes.
    "message.timeout.ms": 10_000,
}
_RESEND = {
    # Retries of the client neither repeat records nor change their order.
    "enable.idempotence": True,
    # A record that is in one topic fits another: the broker decides, not the client.
    "message.max.bytes": 1_000_000_000,
}
_CONTINUE = "check the topic and the broker, and run the same command again: it continues"
_CONSUMER = {
    "group.id": "tailrace-read",
    "enable.auto.commit": False,
    # If the broker deletes old records meanwhile, continue with the oldest that exists.
    "auto.offset.reset": "earliest",
}
_BOUNDED = {
    "enable.partition.eof": True,
    # The broker says only then that an empty partition has no record: by default after half a second.
    "fetch.wait.max.ms": 10,
}
_POLL_S = 0.2
"""The longest delay of Ctrl-C; records arrive without delay."""


@dataclass(frozen=True)
class TopicRecord:
    """A record as a consumer receives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class NewRecord:
    """A record to send."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = ANY_PARTITION
    """By default, the one of its key."""


def as_text(data: bytes | None) -> str | None:
    """Decode bytes as UTF-8; write invalid bytes as backslash escapes."""
    return None if data is None else data.decode("utf-8", "backslashreplace")


def send_records(config: ClientConfig, topic: str, values: Iterable[bytes], key: bytes | None = None) -> int:
    """Send each value as a record; return how many the broker accepted.

    Raises:
        BrokerUnreachable: No broker responded in time.
        TopicMissing: The topic does not exist.
        NotAuthorized: This user may not write to the topic.
        KafkaError: The broker did not accept all records.
    """
    partition_counts(config, [topic])
    sender = RecordSender(config)
    try:
        for value in values:
            if not sender.send(NewRecord(topic, value, key)):
                break
    finally:
        # Also after Ctrl-C: deliver the records that were produced, or report that they failed.
        sender.finish()
    return sender.accepted


class RecordSender:
    """Sends records and counts the accepted ones.

    Args:
        config: The Kafka client's settings.
        resends: Whether the records were in a topic before.
    """

    def __init__(self, config: ClientConfig, *, resends: bool = False) -> None:
        self._config = config
        self._producer = Producer({**config, **_PRODUCER, **(_RESEND if resends else {})})
        self._fix = _CONTINUE if resends else "correct the next record, or check the broker, and send the rest again"
        self._topic = ""
        self._refused: KafkaErrorCode | None = None
        self.accepted = 0

    def send(self, record: NewRecord, on_accepted: Callable[[], object] = lambda: None) -> bool:
        """Produce one record; return False if this or an earlier record was refused.

        Args:
            record: The record.
            on_accepted: Called when the broker has acknowledged it.
        """

        def on_delivery(refused: KafkaErrorCode | None, _record: Message) -> None:
            if refused is None:
                self.accepted += 1
                on_accepted()
            else:
                self._note(record, refused)

        while self._refused is None:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    on_delivery=on_delivery,
                )
            except BufferError:
                # The producer's queue is full: wait for the broker.
                self._producer.poll(_POLL_S)
            except KafkaException as refused:
                self._note(record, refused.args[0])
            else:
                self._producer.poll(0)
                return True
        return False

    def finish(self) -> None:
        """Wait for all delivery reports; raise an error if a record was refused."""
        self._producer.flush()  # message.timeout.ms limits the wait
        if self._refused is not None and self._refused.code() == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise not_authorized(WRITE, self._topic, self._config)
        if self._refused is not None:
            raise KafkaError(
                f"topic {self._topic!r} accepted {counted(self.accepted, 'record')}, then refused one",
                why=self._refused.str(),
                fix=self._fix,
            )

    def _note(self, record: NewRecord, refused: KafkaErrorCode) -> None:
        """Remember the first refusal."""
        if self._refused is None:
            self._topic, self._refused = record.topic, refused


def read_records(
    config: ClientConfig,
    topic: str,
    *,
    starting: str = "earliest",
    count: int | None = None,
    follow: bool = False,
    ends: Mapping[int, int] | None = None,
) -> Generator[TopicRecord]:
    """Read the records of a topic; the start and end offsets are fixed before the first record is read.

    Args:
        config: The Kafka client's settings.
        topic: The topic.
        starting: ``"earliest"``, or ``"latest"`` for new records only.
        count: End after this many records; wait for them if necessary.
        follow: Wait for new records forever. Without ``count`` and ``follow``, end at the current end of the topic.
        ends: The end of each partition, if it is not to be the current one.

    Raises:
        BrokerUnreachable: No broker responded in time.
        TopicMissing: The topic does not exist.
        NotAuthorized: This user may not read the topic.
        KafkaError: The broker refused to send the records.
    """
    ends = ends or log_ends(config, partition_counts(config, [topic]))[topic]
    begin = ends if starting == "latest" else dict.fromkeys(ends, OFFSET_BEGINNING)
    return _records(config, topic, begin, None if follow or count is not None else ends, count)


def _records(
    config: ClientConfig, topic: str, begin: Mapping[int, int], until: Mapping[int, int] | None, count: int | None
) -> Generator[TopicRecord]:
    failures: list[KafkaErrorCode] = []
    bounded = _BOUNDED if until is not None else {}
    consumer = Consumer({**config, **_CONSUMER, **bounded, "error_cb": failures.append})
    unfinished = set(begin)
    yielded = 0
    try:
        with suppress(KafkaException):  # the loop below finds out why
            # A client that does not know the leaders looks for the first offsets only half a second later.
            consumer.list_topics(timeout=ASK_TIMEOUT_S)
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in begin.items()])
        while unfinished and yielded != count:
            message = consumer.poll(_POLL_S)
            if failures:
                # One unreachable address of several reports this too, so ask the broker itself.
                failures.clear()
                partition_counts(config, [topic])
            if message is None:
                continue
            failed = message.error()
            if failed is not None and failed.code() == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED:
                continue  # this consumer joins no group and commits nothing
            record = _record(message, config)
            if record is None:
                unfinished.discard(int(message.partition() or 0))
                continue
            # Skip records that arrived after the start: on a busy topic this would never end.
            if until is None or record.offset < until[record.partition]:
                yielded += 1
                yield record
            if until is not None and record.offset + 1 >= until[record.partition]:
                unfinished.discard(record.partition)
    finally:
        consumer.close()


def topic_record(message: Message) -> TopicRecord:
    """Convert a polled message without an error to plain data."""
    given = message.headers() or []
    pairs = given.items() if isinstance(given, dict) else given
    headers = tuple((name, _bytes(value)) for name, value in pairs)
    position = int(message.partition() or 0), int(message.offset() or 0)
    return TopicRecord(str(message.topic()), *position, _bytes(message.key()), _bytes(message.value()), headers)


def _record(message: Message, config: ClientConfig) -> TopicRecord | None:
    """Convert a polled message; return None for the end of a partition."""
    topic = str(message.topic())
    failed = message.error()
    if failed is None:
        return topic_record(message)
    if failed.code() == KafkaErrorCode._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes begin so
        return None
    partition_counts(config, [topic])  # raises a clearer error if the topic or the broker is gone
    if failed.code() == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED:
        raise not_authorized(READ, topic, config)
    raise KafkaError(f"cannot read topic {topic!r}", why=failed.str(), fix=SEE_BROKER_LOG)


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
