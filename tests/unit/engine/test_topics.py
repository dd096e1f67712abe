"""What Spark's Kafka client answers, with fakes in the place of the JVM."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from tailrace.engine import SparkBrokerPing, kafka_group_rights, kafka_topic_rights, topics
from tailrace.errors import AuthenticationFailed, BrokerUnreachable, KafkaError, TlsFailed

SILENT = "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment."
DENIED = "org.apache.kafka.common.errors.{}AuthorizationException: Not authorized"
LOGIN = "org.apache.kafka.common.errors.SaslAuthenticationException: invalid credentials"
NO_TLS = "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed"
READ = SimpleNamespace(name=lambda: "READ")


class FakeAdmin:
    """Gives one answer to every question: operations, or an exception with this text."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.closed = False

    def get(self, _timeout: int, _unit: object) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        if isinstance(self.answer, str):
            raise PySparkException(self.answer)
        return SimpleNamespace(authorizedOperations=lambda: self.answer)

    def describeTopics(self, names: list[str], _ask: object) -> Any:  # noqa: N802 - Kafka's own names
        return SimpleNamespace(topicNameValues=lambda: dict.fromkeys(names, self))

    def describeConsumerGroups(self, names: list[str], _ask: object) -> Any:  # noqa: N802
        return SimpleNamespace(describedGroups=lambda: dict.fromkeys(names, self))

    def describeCluster(self, _ask: object) -> Any:  # noqa: N802
        return SimpleNamespace(clusterId=lambda: self)

    def close(self, _timeout: object) -> None:
        self.closed = True


class Anything:
    """Stands for Java classes and for what their methods return."""

    def __getattr__(self, _name: str) -> "Anything":
        return self

    def __call__(self, *_arguments: object) -> "Anything":
        return self


SPARK: Any = SimpleNamespace(_jvm=Anything())


@pytest.fixture
def admins(monkeypatch: pytest.MonkeyPatch) -> list[FakeAdmin]:
    """The clients that will be opened, in turn; a closed one stays."""
    clients: list[FakeAdmin] = []
    monkeypatch.setattr(topics, "_open_admin", lambda *_: next(each for each in clients if not each.closed))
    return clients


@pytest.mark.parametrize(("answer", "rights"), [
    ([READ], {"READ"}),
    ([], set()),
    (None, None),
    (DENIED.format("Topic"), set()),
    (DENIED.format("Group"), set()),
    (SILENT, None),
    ("org.apache.kafka.common.errors.UnsupportedVersionException: too old", None),
])  # fmt: skip
def test_rights_are_unknown_unless_the_broker_reports_or_denies_them(
    admins: list[FakeAdmin], answer: Any, rights: set[str] | None
) -> None:
    admins += [FakeAdmin(answer), FakeAdmin(answer)]
    assert kafka_topic_rights(SPARK, {}, ["a", "b"]) == {"a": rights, "b": rights}
    assert kafka_group_rights(SPARK, {}, "g") == rights
    assert [admin.closed for admin in admins] == [True, True]


@pytest.mark.parametrize(("answer", "kind"), [(LOGIN, AuthenticationFailed), (NO_TLS, TlsFailed)])
def test_a_refused_connection_is_an_error(admins: list[FakeAdmin], answer: str, kind: type[KafkaError]) -> None:
    admins += [FakeAdmin(answer), FakeAdmin(answer)]
    with pytest.raises(kind):
        kafka_topic_rights(SPARK, {}, ["a"])
    with pytest.raises(kind):
        kafka_group_rights(SPARK, {}, "g")


@pytest.mark.parametrize(("answer", "kind"), [
    (None, None),
    (DENIED.format("Cluster"), None),  # an answer, too
    (SILENT, BrokerUnreachable),
    (LOGIN, AuthenticationFailed),
    (NO_TLS, TlsFailed),
])  # fmt: skip
def test_a_ping_tells_a_refused_login_from_no_answer(
    admins: list[FakeAdmin], answer: Any, kind: type[KafkaError] | None
) -> None:
    admins += [FakeAdmin(answer), FakeAdmin(None)]
    ping = SparkBrokerPing(SPARK, {})
    problem = ping.ask()
    assert (None if problem is None else type(problem)) == kind
    is_refused = kind in (AuthenticationFailed, TlsFailed)
    assert admins[0].closed is is_refused, "Kafka's client would repeat a refusal without asking again"
    assert (ping.ask() is None) is (is_refused or kind is None)
    ping.close()
    assert admins[is_refused].closed


def test_a_ping_without_spark_is_an_error_of_its_own(admins: list[FakeAdmin]) -> None:
    admins.append(FakeAdmin(Py4JNetworkError("Answer from Java side is empty")))
    with pytest.raises(Py4JNetworkError):
        SparkBrokerPing(SPARK, {}).ask()
