"""What a broker says of a user's rights, and what it leaves out."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation

from tailrace.errors import KafkaError, NotAuthorized
from tailrace.kafka import admin
from tailrace.kafka.rights import group_rights, require_creatable, require_rights, topic_rights

CONFIG = {"bootstrap.servers": "host:9092", "sasl.username": "ann"}


class FakeAdmin:
    """Answers every question with the same."""

    answer: Any = None

    def __init__(self, _config: object) -> None:
        pass

    def poll(self, _timeout: float) -> None:
        """Report nothing."""

    def list_topics(self, **_: object) -> None:
        """Answer, as a broker does to a client that wants to know it."""

    def describe_topics(self, names: Any, **_: object) -> dict[str, Any]:
        return dict.fromkeys(["payments"], self._future())

    def describe_consumer_groups(self, names: list[str], **_: object) -> dict[str, Any]:
        return dict.fromkeys(names, self._future())

    def create_topics(self, topics: list[Any], *, validate_only: bool, **_: object) -> dict[str, Any]:
        assert validate_only, "a question makes nothing"
        return {topics[0].topic: self._future()}

    def _future(self) -> Any:
        done: Future[Any] = Future()
        if isinstance(self.answer, int):
            done.set_exception(KafkaException(Code(self.answer)))
        else:
            done.set_result(SimpleNamespace(authorized_operations=self.answer))
        return done


def answered(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    monkeypatch.setattr(FakeAdmin, "answer", answer)
    monkeypatch.setattr(admin, "AdminClient", FakeAdmin)


@pytest.mark.parametrize(
    ("answer", "rights"),
    [
        ([AclOperation.READ, AclOperation.DESCRIBE], {"READ", "DESCRIBE"}),
        (Code.TOPIC_AUTHORIZATION_FAILED, set()),
        (Code.GROUP_AUTHORIZATION_FAILED, set()),
        (None, None),
        ([], None),
        (Code.UNSUPPORTED_VERSION, None),
    ],
)
def test_rights_are_known_or_unknown(monkeypatch: pytest.MonkeyPatch, answer: Any, rights: set[str] | None) -> None:
    answered(monkeypatch, answer)
    assert topic_rights(CONFIG, ["payments"]) == {"payments": rights}
    assert group_rights(CONFIG, "readers") == rights


def test_a_missing_right_is_refused_with_the_command_that_grants_it() -> None:
    held = {"payments": frozenset({"READ"}), "clicks": None}
    assert require_rights(CONFIG, "READ", held) == ["clicks"]
    with pytest.raises(NotAuthorized) as refused:
        require_rights(CONFIG, "WRITE", held)
    assert refused.value.what == "user 'ann' may not write to topic 'payments' at host:9092"
    assert refused.value.why.endswith("the broker grants READ")
    assert refused.value.fix.endswith("--allow-principal User:ann --operation Write --topic payments")
    with pytest.raises(NotAuthorized, match="this client may not read group 'readers'") as nothing:
        require_rights({"bootstrap.servers": "host:1"}, "READ", {"readers": frozenset()}, group=True)
    assert "grants nothing" in nothing.value.why


@pytest.mark.parametrize(
    ("answer", "kind"), [(Code.TOPIC_AUTHORIZATION_FAILED, NotAuthorized), (Code.POLICY_VIOLATION, KafkaError)]
)
def test_a_topic_that_cannot_be_created_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: int, kind: type[KafkaError]
) -> None:
    answered(monkeypatch, answer)
    with pytest.raises(KafkaError) as refused:
        require_creatable(CONFIG, "payments")
    assert type(refused.value) is kind


@pytest.mark.parametrize("answer", [None, Code.TOPIC_ALREADY_EXISTS])
def test_a_topic_that_can_be_created_or_exists_is_accepted(monkeypatch: pytest.MonkeyPatch, answer: int | None) -> None:
    answered(monkeypatch, answer)
    require_creatable(CONFIG, "payments")
