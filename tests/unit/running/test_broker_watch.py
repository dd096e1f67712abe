import logging
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError as KafkaErrorCode
from confluent_kafka import KafkaException

from tailrace.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, TlsFailed
from tailrace.kafka.reachable import ANSWER_TIMEOUT_S
from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.running import broker_watch
from tailrace.running.broker_watch import BrokerWatch, broker_pings

from ..conftest import WaitUntil

OK = None
SILENT = BrokerUnreachable("no Kafka broker responds at here:9092")
REFUSED = AuthenticationFailed("the broker refuses the login of user 'ann'", why="Authentication failed")
NO_TLS = TlsFailed("client and broker cannot agree on TLS", why="the certificate has expired")


class FakePing:
    """Returns the given results, and then the last one again and again."""

    def __init__(self, *results: KafkaError | None) -> None:
        self.asked = 0
        self.closed = False
        self._results = results

    def ask(self) -> KafkaError | None:
        self.asked += 1
        return self._results[min(self.asked, len(self._results)) - 1]

    def close(self) -> None:
        self.closed = True


def watch(ping: Any, has_ended: Any = lambda: False) -> BrokerWatch:
    return BrokerWatch("fraud", "here:9092", lambda: ping, has_ended)


def lines(caplog: pytest.LogCaptureFixture, results: Sequence[KafkaError | None]) -> list[str]:
    noted = watch(FakePing())
    for second, result in enumerate(results):
        noted.note(result, now=float(10 * second))
    return [record.getMessage() for record in caplog.records]


GONE = "query 'fraud': no Kafka broker responds at here:9092"
BACK = "query 'fraud': the Kafka broker at here:9092 responds again after {} s"


LOGIN = "query 'fraud': the broker refuses the login of user 'ann': Authentication failed"
TLS = "query 'fraud': client and broker cannot agree on TLS: the certificate has expired"


@pytest.mark.parametrize(("results", "logged"), [
    ([OK, OK, OK], []),
    ([OK, SILENT, OK, SILENT, OK], []),  # slow now and then
    ([OK, SILENT, SILENT], [GONE]),
    ([OK, SILENT, SILENT, SILENT, SILENT], [GONE]),
    ([OK, OK, SILENT, SILENT, SILENT, OK, OK], [GONE, BACK.format(40)]),
    ([OK, SILENT, SILENT, OK, SILENT, SILENT, OK], [GONE, BACK.format(30)] * 2),
    ([SILENT, SILENT, SILENT], [GONE]),  # right after the start, which had an answer
])  # fmt: skip
def test_a_line_when_brokers_fall_silent_and_one_when_they_are_back(
    caplog: pytest.LogCaptureFixture, results: Sequence[KafkaError | None], logged: list[str]
) -> None:
    assert lines(caplog, results) == logged
    assert all(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize(("results", "logged"), [
    ([OK, REFUSED], []),  # may be lost on a busy machine, as any answer
    ([OK, REFUSED, REFUSED, REFUSED], [LOGIN]),
    ([OK, REFUSED, REFUSED, OK], [LOGIN, BACK.format(30)]),
    ([OK, NO_TLS, NO_TLS], [TLS]),
    ([OK, SILENT, SILENT, REFUSED, REFUSED, OK], [GONE, LOGIN, BACK.format(50)]),  # restarted with other passwords
    ([OK, REFUSED, REFUSED, SILENT, SILENT], [LOGIN, GONE]),
    ([OK, SILENT, REFUSED], [LOGIN]),
])  # fmt: skip
def test_a_refused_login_is_not_reported_as_an_unreachable_broker(
    caplog: pytest.LogCaptureFixture, results: Sequence[KafkaError | None], logged: list[str]
) -> None:
    assert lines(caplog, results) == logged
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_it_ends_with_the_query(monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil) -> None:
    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.001)
    ping = FakePing(OK)
    ends = watch(ping, lambda: ping.asked >= 3)
    ends.start()
    wait_until(lambda: not ends._thread.is_alive(), "the thread has ended")
    assert ping.asked == 3
    assert ping.closed


def test_nothing_is_logged_after_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    class EndedMeanwhile(FakePing):
        def ask(self) -> KafkaError | None:
            if self.asked == 2:
                ended.end()
            return super().ask()

    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.001)
    ended = watch(EndedMeanwhile(OK, SILENT, SILENT))
    ended.start()
    wait_until(lambda: not ended._thread.is_alive(), "the thread has ended")
    assert caplog.records == []


def test_every_address_is_asked_once_and_through_spark_if_only_spark_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_watch, "BrokerPing", lambda config: f"own {config['bootstrap.servers']}")
    monkeypatch.setattr(
        broker_watch,
        "SparkBrokerPing",
        lambda spark, options: f"{spark} {options['kafka.bootstrap.servers']} {options['kafka.group.id']}",
    )
    key_store = {"kafka.ssl.truststore.location": "/trust.jks", "kafka.Group.id": "g"}
    reads: Any = [
        StreamRead("kafka", {"kafka.bootstrap.servers": "a:1", "subscribe": "in"}),
        StreamRead("kafka", {"KAFKA.bootstrap.servers": "a:1", "subscribe": "other"}),
        StreamRead("kafka", {"kafka.bootstrap.servers": "b:1", **key_store}),
        StreamRead("rate", {}),
    ]
    sink = WriterSettings("kafka", "update", {"kafka.bootstrap.servers": "c:1", "topic": "out"})
    spark: Any = "spark"
    pings = broker_pings(reads, sink, spark)
    assert {address: connect() for address, connect in pings.items()} == {
        "a:1": "own a:1",
        "b:1": "spark b:1 g",
        "c:1": "own c:1",
    }
    assert set(broker_pings(reads, sink, None)) == {"a:1", "c:1"}
    assert broker_pings([], None, spark) == {}


def test_an_outage_is_logged_within_half_a_minute() -> None:
    """Even if each question takes twice its timeout, which limits it."""
    questions = broker_watch._FAILURES * 2 * ANSWER_TIMEOUT_S
    assert broker_watch._ASK_EVERY_S + questions + (broker_watch._FAILURES - 1) * broker_watch._ASK_AGAIN_S < 30


def test_a_jvm_that_does_not_respond_is_not_a_silent_broker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    class WithoutJvm(FakePing):
        def ask(self) -> KafkaError | None:
            super().ask()
            raise ConnectionRefusedError

        def close(self) -> None:
            super().close()
            raise ConnectionRefusedError

    monkeypatch.setattr(broker_watch, "_ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(broker_watch, "_ASK_EVERY_S", 0.001)
    ping = WithoutJvm(OK)
    watched = watch(ping, lambda: ping.asked >= 5)
    watched.start()
    wait_until(lambda: not watched._thread.is_alive(), "the thread has ended")
    assert ping.asked == 5
    assert caplog.records == []


def test_a_client_that_cannot_be_created_is_only_a_warning(
    caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    def refuse() -> Any:
        raise KafkaException(KafkaErrorCode(KafkaErrorCode._INVALID_ARG))

    BrokerWatch("fraud", "here:9092", refuse, lambda: False).start()
    wait_until(lambda: bool(caplog.records), "a warning")
    assert "its brokers cannot be watched" in caplog.records[0].getMessage()
