import logging
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.running import broker_watch
from tailrace.running.broker_watch import BrokerWatch, broker_configs

from ..conftest import WaitUntil


class FakePing:
    """A broker that answers as listed, and from then on as the last time."""

    def __init__(self, *answers: bool) -> None:
        self.asked = 0
        self._answers = answers

    def ask(self) -> bool:
        self.asked += 1
        return self._answers[min(self.asked, len(self._answers)) - 1]


def watch(ping: Any, has_ended: Any = lambda: False) -> BrokerWatch:
    return BrokerWatch("fraud", "here:9092", lambda: ping, has_ended)


def lines(caplog: pytest.LogCaptureFixture, answers: Sequence[bool]) -> list[str]:
    noted = watch(FakePing())
    for second, answered in enumerate(answers):
        noted.note(answered=answered, now=float(10 * second))
    return [record.getMessage() for record in caplog.records]


GONE = "query 'fraud': no Kafka broker answers at here:9092"
BACK = "query 'fraud': a Kafka broker answers again at here:9092, after {} s"


@pytest.mark.parametrize(("answers", "told"), [
    ([True, True, True], []),
    ([True, False, True, False, True], []),  # slow now and then
    ([True, False, False], [GONE]),
    ([True, False, False, False, False], [GONE]),
    ([True, True, False, False, False, True, True], [GONE, BACK.format(40)]),
    ([True, False, False, True, False, False, True], [GONE, BACK.format(30)] * 2),
    ([False, False, False], [GONE]),  # right after the start, which had an answer
])  # fmt: skip
def test_a_line_when_brokers_fall_silent_and_one_when_they_are_back(
    caplog: pytest.LogCaptureFixture, answers: Sequence[bool], told: list[str]
) -> None:
    assert lines(caplog, answers) == told
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_it_ends_with_the_query(monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil) -> None:
    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.001)
    ping = FakePing(True)
    ends = watch(ping, lambda: ping.asked >= 3)
    ends.start()
    wait_until(lambda: not ends._thread.is_alive(), "the thread has ended")
    assert ping.asked == 3


def test_nothing_is_logged_after_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    class EndedMeanwhile(FakePing):
        def ask(self) -> bool:
            if self.asked == 2:
                ended.end()
            return super().ask()

    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.001)
    ended = watch(EndedMeanwhile(True, False, False))
    ended.start()
    wait_until(lambda: not ended._thread.is_alive(), "the thread has ended")
    assert caplog.records == []


def test_every_address_is_asked_once_and_only_those_that_our_own_client_can_reach() -> None:
    key_store = {"kafka.ssl.truststore.location": "/trust.jks"}
    reads: Any = [
        StreamRead("kafka", {"kafka.bootstrap.servers": "a:1", "subscribe": "in"}),
        StreamRead("kafka", {"KAFKA.bootstrap.servers": "a:1", "subscribe": "other"}),
        StreamRead("kafka", {"kafka.bootstrap.servers": "b:1", **key_store}),
        StreamRead("rate", {}),
    ]
    sink = WriterSettings("kafka", "update", {"kafka.bootstrap.servers": "c:1", "topic": "out"})
    assert [config["bootstrap.servers"] for config in broker_configs(reads, sink)] == ["a:1", "c:1"]
    assert broker_configs([], None) == []


def test_a_client_that_cannot_be_made_is_a_warning_and_no_more(
    caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    def refuse() -> Any:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    BrokerWatch("fraud", "here:9092", refuse, lambda: False).start()
    wait_until(lambda: bool(caplog.records), "a warning")
    assert "its brokers cannot be watched" in caplog.records[0].getMessage()
