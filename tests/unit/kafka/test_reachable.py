from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.errors import AuthenticationFailed, BrokerUnreachable, TlsFailed
from tailrace.kafka import reachable
from tailrace.kafka.reachable import BrokerPing

CONFIG = {"bootstrap.servers": "here:9092", "security.protocol": "SASL_SSL", "sasl.username": "ann"}
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT)
DENIED = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
LOGIN = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://here:9092/1: Invalid credentials (after 3ms in state AUTH)")
TLS = KafkaError(KafkaError._SSL, "ssl handshake failed: certificate verify failed")
CLOSED = KafkaError(KafkaError._TRANSPORT, "Connect failed: Connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class FakeAdmin:
    """Ends each request as listed; ``poll`` delivers the reports of the request before."""

    requests: Sequence[tuple[KafkaError | None, Sequence[KafkaError]]] = ()

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._error_cb: Callable[[KafkaError], None] = settings["error_cb"]
        self._left = iter(self.requests)
        self._reports: Sequence[KafkaError] = ()

    def describe_cluster(self, request_timeout: float) -> Future[None]:
        failed, self._reports = next(self._left)
        answer: Future[None] = Future()
        if failed is None:
            answer.set_result(None)
        else:
            answer.set_exception(KafkaException(failed))
        return answer

    def poll(self, _timeout: float) -> None:
        for report in self._reports:
            self._error_cb(report)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[type | None]]:
    def ask(*requests: tuple[KafkaError | None, Sequence[KafkaError]]) -> list[type | None]:
        monkeypatch.setattr(FakeAdmin, "requests", requests)
        monkeypatch.setattr(reachable, "AdminClient", FakeAdmin)
        ping = BrokerPing(CONFIG)
        problems = [ping.ask() for _ in requests]
        return [None if problem is None else type(problem) for problem in problems]

    return ask


@pytest.mark.parametrize(("requests", "expected"), [
    ([(None, [])], [None]),
    ([(DENIED, [])], [None]),  # an answer, too
    ([(TIMED_OUT, [])], [BrokerUnreachable]),
    ([(TIMED_OUT, [CLOSED, ALL_DOWN])], [BrokerUnreachable]),
    ([(TIMED_OUT, [LOGIN, ALL_DOWN])], [AuthenticationFailed]),
    ([(TIMED_OUT, [TLS])], [TlsFailed]),
    ([(TIMED_OUT, [LOGIN]), (TIMED_OUT, [])], [AuthenticationFailed] * 2),  # repeated errors are reported once
    ([(TIMED_OUT, [LOGIN]), (None, []), (TIMED_OUT, [])], [AuthenticationFailed, None, BrokerUnreachable]),
    ([(TIMED_OUT, [LOGIN]), (TIMED_OUT, [CLOSED])], [AuthenticationFailed, BrokerUnreachable]),
])  # fmt: skip
def test_a_refused_login_is_distinguished_from_no_response(
    kinds: Callable[..., list[type | None]], requests: Sequence[Any], expected: list[type | None]
) -> None:
    assert kinds(*requests) == expected


def test_the_error_names_the_user_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeAdmin, "requests", [(TIMED_OUT, [LOGIN])])
    monkeypatch.setattr(reachable, "AdminClient", FakeAdmin)
    problem = BrokerPing(CONFIG).ask()
    assert problem is not None
    assert "'ann'" in problem.what
    assert problem.why == "Invalid credentials"
