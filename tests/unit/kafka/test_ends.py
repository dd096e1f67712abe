"""Where topics end, at a broker made of lists: what a consumer can see, and what only marks a transaction's end."""

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import BrokerUnreachable
from tailrace.kafka import admin, failures, topics
from tailrace.kafka.topics import log_ends, visible_ends

CONFIG = {"bootstrap.servers": "broker.example:9092"}
LATEST = type(OffsetSpec.latest())  # type: ignore[no-untyped-call]

Logs = dict[tuple[str, int], "Log"]


@dataclass(frozen=True)
class Log:
    """A partition: where it begins, and of each entry whether a consumer can see it."""

    start: int
    entries: tuple[bool, ...]

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    @property
    def visible_end(self) -> int:
        seen = [self.start + at + 1 for at, visible in enumerate(self.entries) if visible]
        return seen[-1] if seen else self.start


@dataclass(frozen=True)
class FakeRecord:
    place: tuple[str, int]
    at: int
    failed: KafkaError | None = None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failed


class FakeBroker:
    """Its partitions, and how often somebody began to read."""

    def __init__(self, logs: Logs) -> None:
        self.logs = logs
        self.assigned: list[dict[tuple[str, int], int]] = []
        self.closed = 0
        self.silent = False
        self._waiting: list[FakeRecord] = []

    def list_topics(self, **_: object) -> None:
        """Answer, as a broker does to a client that wants to know it."""

    def list_offsets(self, asked: Mapping[TopicPartition, object], **_: object) -> dict[TopicPartition, Any]:
        answers: dict[TopicPartition, Any] = {}
        for place, spec in asked.items():
            log = self.logs[place.topic, place.partition]
            answer: Future[Any] = Future()
            if self.silent:
                answer.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
            else:
                answer.set_result(SimpleNamespace(offset=log.end if isinstance(spec, LATEST) else log.start))
            answers[place] = answer
        return answers

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned.append({(place.topic, place.partition): place.offset for place in places})
        self._waiting = []
        for place, begin in self.assigned[-1].items():
            log = self.logs[place]
            seen = [log.start + at for at, visible in enumerate(log.entries) if visible and log.start + at >= begin]
            self._waiting += [FakeRecord(place, offset) for offset in seen]
            self._waiting.append(FakeRecord(place, log.end, KafkaError(KafkaError._PARTITION_EOF)))

    def poll(self, _timeout: float) -> FakeRecord | None:
        return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        self.closed += 1


def ask(patch: pytest.MonkeyPatch, logs: Logs) -> FakeBroker:
    broker = FakeBroker(logs)
    patch.setattr(admin, "AdminClient", lambda _config: broker)
    patch.setattr(failures, "wanted_by", lambda _servers, _protocol: None)
    patch.setattr(topics, "Consumer", lambda _config: broker)
    return broker


def counts_of(logs: Logs) -> dict[str, int]:
    return {topic: 1 + max(number for name, number in logs if name == topic) for topic, _ in logs}


def test_the_end_of_the_log_counts_every_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = {("a", 0): Log(3, (True, False)), ("a", 1): Log(0, ()), ("b", 0): Log(0, (True,))}
    broker = ask(monkeypatch, logs)
    assert log_ends(CONFIG, {"a": 2, "b": 1}) == {"a": {0: 5, 1: 0}, "b": {0: 1}}
    assert broker.assigned == [], "nothing was read for it"


def test_the_visible_end_is_after_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ask(monkeypatch, {("a", 0): Log(0, (True, True)), ("a", 1): Log(7, (True, False))})
    assert visible_ends(CONFIG, {"a": 2}) == {"a": {0: 2, 1: 8}}
    assert broker.assigned == [{("a", 0): 1, ("a", 1): 8}, {("a", 1): 7}], "only the one that was not clear yet"
    assert broker.closed == 1


@pytest.mark.parametrize("start", [0, 42])
def test_an_empty_partition_is_not_read(monkeypatch: pytest.MonkeyPatch, start: int) -> None:
    broker = ask(monkeypatch, {("a", 0): Log(start, ())})
    assert visible_ends(CONFIG, {"a": 1}) == {"a": {0: start}}
    assert broker.assigned == []
    assert broker.closed == 1


def test_a_partition_without_visible_records_ends_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(monkeypatch, {("a", 0): Log(5, (False,) * 300)})
    assert visible_ends(CONFIG, {"a": 1}) == {"a": {0: 5}}


def test_a_long_transaction_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ask(monkeypatch, {("a", 0): Log(0, (True, *[False] * 20_000))})
    assert visible_ends(CONFIG, {"a": 1}) == {"a": {0: 1}}
    assert len(broker.assigned) <= 4


@given(
    logs=st.dictionaries(
        st.tuples(st.sampled_from(["a", "b"]), st.just(0)),
        st.builds(Log, st.integers(0, 50), st.lists(st.booleans(), max_size=150).map(tuple)),
        min_size=1,
    )
)
def test_every_visible_end_is_found(logs: Logs) -> None:
    with pytest.MonkeyPatch.context() as patch:
        broker = ask(patch, logs)
        ends = visible_ends(CONFIG, counts_of(logs))
    assert ends == {topic: {0: log.visible_end} for (topic, _), log in logs.items()}
    assert broker.closed == 1


def test_an_unreachable_broker_is_an_error_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ask(monkeypatch, {("a", 0): Log(0, (True,))})
    broker.silent = True
    for question in (log_ends, visible_ends):
        with pytest.raises(BrokerUnreachable, match=r"broker\.example"):
            question(CONFIG, {"a": 1})


def test_a_broker_that_stops_sending_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ask(monkeypatch, {("a", 0): Log(0, (True,))})
    monkeypatch.setattr(broker, "poll", lambda _timeout: None)
    with pytest.raises(BrokerUnreachable):
        visible_ends(CONFIG, {"a": 1})
    assert broker.closed == 1
