"""Why a broker did not answer, from what the clients say."""

import pytest
from confluent_kafka import KafkaError as Code

from tailrace.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, NotAuthorized, TlsFailed
from tailrace.kafka import failures
from tailrace.kafka.cause import Cause
from tailrace.kafka.failures import broker_error, librdkafka_cause
from tailrace.kafka.listener import Wants

CONFIG = {"bootstrap.servers": "host:9092", "sasl.username": "ann", "sasl.password": "secret"}
AT = "sasl_ssl://host:9092/bootstrap: "
AFTER = " (after 310ms in state AUTH_REQ)"
DOWN = Code(Code._ALL_BROKERS_DOWN, "1/1 brokers are down")
NO_ANSWER = Code(Code._TRANSPORT, "Failed to get metadata: Local: Broker transport failure")


@pytest.fixture(autouse=True)
def wants(monkeypatch: pytest.MonkeyPatch) -> dict[str, Wants | None]:
    """What the listener wants, without one."""
    listener: dict[str, Wants | None] = {"it": None}
    monkeypatch.setattr(failures, "wanted_by", lambda _servers, _protocol: listener["it"])
    return listener


@pytest.mark.parametrize(
    ("beside", "kind", "why"),
    [
        (Code(Code._AUTHENTICATION, f"{AT}SASL authentication error: bad{AFTER}"), AuthenticationFailed, "error: bad"),
        (Code(Code._SSL, f"{AT}SSL handshake failed: certificate verify failed: x{AFTER}"), TlsFailed, "certificate"),
        (
            Code(Code._TRANSPORT, f"{AT}Disconnected: connecting to a PLAINTEXT broker listener?{AFTER}"),
            TlsFailed,
            "the port does not",
        ),
        (Code(Code._RESOLVE, f"{AT}Failed to resolve"), BrokerUnreachable, "transport failure"),
    ],
)
def test_asynchronous_errors_of_the_client_explain_a_failure(beside: Code, kind: type[KafkaError], why: str) -> None:
    cause = librdkafka_cause(CONFIG, NO_ANSWER, [DOWN, beside, DOWN])
    assert cause.kind is kind
    assert cause.why.endswith(why) or why in cause.why
    assert "after" not in cause.why
    assert "://" not in cause.why


@pytest.mark.parametrize(
    "code",
    [Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED, Code.CLUSTER_AUTHORIZATION_FAILED],
)
def test_a_missing_right_is_not_an_unreachable_broker(code: int) -> None:
    assert librdkafka_cause(CONFIG, Code(code)).kind is NotAuthorized


def test_a_broker_that_refuses_is_reachable() -> None:
    assert librdkafka_cause(CONFIG, Code(Code.POLICY_VIOLATION)).kind is KafkaError
    assert librdkafka_cause(CONFIG, Code(Code.REQUEST_TIMED_OUT)).kind is BrokerUnreachable
    assert librdkafka_cause(CONFIG, None).kind is BrokerUnreachable


def test_an_unreadable_certificate_is_a_tls_failure() -> None:
    unreadable = Code(Code._INVALID_ARG, "Failed to create admin client: ssl.ca.location failed: BIO lib")
    assert librdkafka_cause(CONFIG, unreadable).kind is TlsFailed


def test_a_silent_listener_is_probed_for_what_it_requires(wants: dict[str, Wants | None]) -> None:
    wants["it"] = Wants.TLS
    tls = broker_error(CONFIG, librdkafka_cause(CONFIG, NO_ANSWER, [DOWN]))
    assert type(tls) is TlsFailed
    assert "SASL_SSL" in tls.fix
    wants["it"] = Wants.LOGIN
    login = broker_error({"bootstrap.servers": "host:1"}, librdkafka_cause({}, None))
    assert type(login) is AuthenticationFailed
    assert "kafka.sasl.jaas.config" in login.fix


@pytest.mark.parametrize("kind", [TlsFailed, AuthenticationFailed, NotAuthorized, BrokerUnreachable, KafkaError])
def test_every_error_has_the_broker_and_a_fix_but_no_password(kind: type[KafkaError]) -> None:
    error = broker_error(CONFIG, Cause(kind, "it said so"))
    assert type(error) is kind
    assert "host:9092" in error.what
    assert error.why == "it said so"
    assert error.fix
    assert "secret" not in str(error)
    assert ("tailrace broker start" in error.fix) is (kind is BrokerUnreachable)
