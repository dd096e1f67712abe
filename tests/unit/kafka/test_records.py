from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException

from tailrace.errors import BrokerUnreachable, KafkaError, NotAuthorized
from tailrace.kafka import records
from tailrace.kafka.client import client_config
from tailrace.kafka.ports import free_ports
from tailrace.kafka.records import NewRecord, RecordSender, as_text, read_records, send_records

CONFIG = {"bootstrap.servers": "host:1"}


@pytest.fixture
def nobody() -> dict[str, str | int]:
    """An address at which nothing listens."""
    config = client_config(f"127.0.0.1:{free_ports(1)[0]}", {})
    assert config is not None
    return config


def test_bytes_that_are_not_utf_8_are_escaped() -> None:
    assert as_text("grün".encode() + b"\xff\x00") == "grün\\xff\x00"
    assert as_text(b"") == ""
    assert as_text(None) is None


def test_without_a_broker_no_input_is_consumed(nobody: dict[str, str | int]) -> None:
    taken = []

    def values() -> Iterator[bytes]:
        taken.append(1)
        yield b"x"

    with pytest.raises(BrokerUnreachable):
        send_records(nobody, "payments", values())
    assert taken == []


def test_without_a_broker_reading_fails_before_the_first_record(nobody: dict[str, str | int]) -> None:
    with pytest.raises(BrokerUnreachable):
        read_records(nobody, "payments", follow=True)


@dataclass
class Polled:
    """A message, as a consumer's poll returns it."""

    partition_: int
    offset_: int = 0
    failed: Any = None

    def topic(self) -> str:
        return "payments"

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def error(self) -> Any:
        return self.failed

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return f"{self.partition_}:{self.offset_}".encode()

    def headers(self) -> None:
        return None


def end(partition: int) -> Polled:
    return Polled(partition, failed=KafkaErrorCode(KafkaErrorCode._PARTITION_EOF))


class FakeConsumer:
    """Gives what a test has put there, then nothing for ever."""

    polls: list[Any] = []  # noqa: RUF012 - set by each test

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.left = iter(self.polls)
        FakeConsumer.last = self
        self.closed = self.has_metadata = self.had_metadata = False

    last: "FakeConsumer"

    def list_topics(self, timeout: float) -> None:
        self.has_metadata = True
        if self.is_mute:
            raise KafkaException(KafkaErrorCode(KafkaErrorCode._TRANSPORT))

    is_mute = False

    def assign(self, partitions: list[Any]) -> None:
        self.had_metadata = self.has_metadata
        self.assigned = {each.partition: each.offset for each in partitions}

    def poll(self, _timeout: float) -> Any:
        polled = next(self.left)
        if isinstance(polled, KafkaErrorCode):
            self.settings["error_cb"](polled)
            return None
        return polled

    def close(self) -> None:
        self.closed = True


Topic = Callable[[dict[int, int], list[Any]], None]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    """Make a topic that ends at given offsets, and what polls will bring."""

    def make(ends: dict[int, int], polls: list[Any]) -> None:
        monkeypatch.setattr(records, "partition_counts", lambda *_: {"payments": len(ends)})
        monkeypatch.setattr(records, "log_ends", lambda *_: {"payments": ends})
        monkeypatch.setattr(FakeConsumer, "polls", polls)
        monkeypatch.setattr(records, "Consumer", FakeConsumer)

    return make


def read(**options: Any) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in read_records(CONFIG, "payments", **options)]


def test_existing_records_are_read_to_the_end_of_each_partition(topic: Topic) -> None:
    topic({0: 2, 1: 1, 2: 0}, [Polled(0, 0), None, Polled(1, 0), end(2), Polled(0, 1)])
    assert read() == [(0, 0), (1, 0), (0, 1)]
    assert FakeConsumer.last.closed


def test_the_first_record_does_not_wait_for_a_second_look_at_the_leaders(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, 0)])
    assert read() == [(0, 0)]
    assert FakeConsumer.last.had_metadata


@pytest.mark.parametrize("bounded", [True, False])
def test_an_empty_partition_is_reported_at_once_if_its_end_is_waited_for(topic: Topic, bounded: bool) -> None:
    topic({0: 0}, [end(0) if bounded else Polled(0, 0)])
    read(count=None if bounded else 1)
    assert FakeConsumer.last.settings.get("fetch.wait.max.ms") == (10 if bounded else None)


def test_a_broker_that_is_slow_to_list_its_topics_may_still_send_records(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeConsumer, "is_mute", True)
    topic({0: 1}, [None, Polled(0, 0)])
    assert read() == [(0, 0)]


def test_records_that_arrive_while_reading_are_left_out(topic: Topic) -> None:
    topic({0: 1, 1: 5}, [Polled(0, 0), Polled(0, 1), Polled(0, 2), Polled(1, 4), Polled(1, 5)])
    assert read() == [(0, 0), (1, 4)]


def test_a_record_past_the_end_ends_its_partition(topic: Topic) -> None:
    topic({0: 3}, [Polled(0, 7)])
    assert read() == []


def test_a_partition_may_end_before_its_log_does(topic: Topic) -> None:
    # The last entry may be a transaction's mark, which no consumer ever sees.
    topic({0: 2}, [Polled(0, 0), end(0)])
    assert read() == [(0, 0)]


def test_a_count_waits_for_that_many_records(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, 0), None, None, Polled(0, 1), Polled(0, 2)])
    assert read(count=2) == [(0, 0), (0, 1)]
    assert "enable.partition.eof" not in FakeConsumer.last.settings


def test_latest_starts_at_the_end_of_the_topic(topic: Topic) -> None:
    topic({0: 3, 1: 4}, [Polled(1, 4)])
    assert read(starting="latest", count=1) == [(1, 4)]
    assert FakeConsumer.last.assigned == {0: 3, 1: 4}


def test_follow_does_not_stop_at_the_end(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, 0), None, Polled(0, 1)])
    following = read_records(CONFIG, "payments", follow=True)
    assert [next(following).offset, next(following).offset] == [0, 1]
    following.close()
    assert FakeConsumer.last.closed


def test_a_broker_that_stops_is_an_error(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic({0: 1}, [KafkaErrorCode(KafkaErrorCode._ALL_BROKERS_DOWN), Polled(0, 0)])
    assert read() == [(0, 0)], "the broker still answers, so that was nothing"
    asked = []

    def gone(*_: object) -> dict[str, int]:
        asked.append(1)
        if len(asked) > 1:
            raise BrokerUnreachable("no Kafka broker responds")
        return {"payments": 1}

    monkeypatch.setattr(records, "partition_counts", gone)
    with pytest.raises(BrokerUnreachable):
        read(follow=True)
    assert FakeConsumer.last.closed


def test_an_unreadable_topic_is_an_error_with_the_brokers_reason(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, failed=KafkaErrorCode(KafkaErrorCode.INVALID_MSG))])
    with pytest.raises(KafkaError, match="cannot read topic") as refused:
        read()
    assert "Invalid message" in refused.value.why
    assert refused.value.fix


def test_a_topic_without_read_right_is_not_authorized(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, failed=KafkaErrorCode(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED))])
    with pytest.raises(NotAuthorized, match="may not read topic 'payments'") as refused:
        read()
    assert "--operation Read --topic payments" in refused.value.fix


def test_reading_needs_no_right_to_a_group(topic: Topic) -> None:
    topic({0: 1}, [Polled(0, failed=KafkaErrorCode(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)), Polled(0, 0)])
    assert read() == [(0, 0)]


class FakeProducer:
    """Takes a few records and refuses the next one, at once or later."""

    def __init__(self, _settings: dict[str, Any]) -> None:
        self.answers: list[tuple[Any, Any]] = []
        self.produced = 0

    def produce(self, _topic: str, value: bytes, *, on_delivery: Callable[..., None], **_more: object) -> None:
        if value == b"too large":
            raise KafkaException(KafkaErrorCode(KafkaErrorCode.MSG_SIZE_TOO_LARGE))
        if value == b"full" and not self.produced:
            self.produced += 1
            raise BufferError
        lost = KafkaErrorCode(KafkaErrorCode._MSG_TIMED_OUT) if value == b"lost" else None
        self.answers.append((on_delivery, lost))

    def poll(self, _timeout: float) -> None:
        while self.answers:
            answer, lost = self.answers.pop(0)
            answer(lost, None)

    def flush(self) -> None:
        self.poll(0)


@pytest.fixture
def fake_producer(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    topic({0: 0}, [])
    monkeypatch.setattr(records, "Producer", FakeProducer)


@pytest.mark.usefixtures("fake_producer")
def test_accepted_records_are_counted() -> None:
    assert send_records(CONFIG, "payments", [b"a", b"full", b""]) == 3
    assert send_records(CONFIG, "payments", []) == 0


@pytest.mark.usefixtures("fake_producer")
@pytest.mark.parametrize("bad", [b"too large", b"lost"])
def test_a_refused_record_is_an_error_with_the_number_accepted(bad: bytes) -> None:
    rest = iter([b"a", b"b", bad, b"c", b"d"])
    with pytest.raises(KafkaError, match="accepted 2 records, then refused one") as refused:
        send_records(CONFIG, "payments", rest)
    assert refused.value.why
    assert refused.value.fix
    assert b"d" in list(rest), "nothing more was taken from the input"


@pytest.mark.usefixtures("fake_producer")
def test_records_produced_before_ctrl_c_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []
    monkeypatch.setattr(FakeProducer, "flush", lambda _: flushed.append(1))

    def values() -> Iterator[bytes]:
        yield b"a"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        send_records(CONFIG, "payments", values())
    assert flushed == [1]


def test_given_ends_are_the_end(topic: Topic) -> None:
    topic({0: 9}, [Polled(0, 0), Polled(0, 1)])
    assert read(ends={0: 1}) == [(0, 0)]


@pytest.mark.usefixtures("fake_producer")
def test_each_accepted_record_is_reported() -> None:
    accepted: list[bytes] = []
    sender = RecordSender(CONFIG, resends=True)
    for value in (b"a", b"lost", b"b", b"c"):
        sender.send(NewRecord("payments", value), lambda value=value: accepted.append(value))
    with pytest.raises(KafkaError, match="topic 'payments' accepted") as refused:
        sender.finish()
    assert accepted == [b"a"]
    assert "run the same command again" in refused.value.fix
