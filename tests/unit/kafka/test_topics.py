import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import BrokerUnreachable, TopicMissing
from tailrace.kafka import admin, listener, topics
from tailrace.kafka.client import client_config
from tailrace.kafka.ports import free_ports
from tailrace.kafka.topics import first_missing_partitions, list_topics, partition_counts


@pytest.fixture
def nobody() -> dict[str, str | int]:
    """An address at which nothing listens."""
    config = client_config(f"127.0.0.1:{free_ports(1)[0]}", {})
    assert config is not None
    return config


def test_an_unreachable_broker_is_reported_after_one_question_of_two_seconds(
    nobody: dict[str, str | int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its listener is asked, so that 5 s are enough; how long that takes on a busy machine is not measured."""
    timeouts: list[float] = []

    class Admin(AdminClient):
        def list_topics(self, *, timeout: float) -> Any:
            timeouts.append(timeout)
            return super().list_topics(timeout=timeout)

    monkeypatch.setattr(admin, "AdminClient", Admin)
    with pytest.raises(BrokerUnreachable) as refused:
        partition_counts(nobody, ["payments"])
    assert timeouts == [2.0]
    assert sum(timeouts) + listener._TOTAL_S < 5
    assert str(nobody["bootstrap.servers"]) in refused.value.what
    assert "tailrace broker start" in refused.value.fix
    assert refused.value.why


def test_errors_about_a_broker_hide_passwords(nobody: dict[str, str | int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "ASK_TIMEOUT_S", 0.2)
    secret = "correct-horse-battery"
    jaas = f'x.PlainLoginModule required username="ann" password="{secret}";'
    options = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    config = client_config(str(nobody["bootstrap.servers"]), options | {"kafka.sasl.jaas.config": jaas})
    assert config is not None
    assert config["sasl.password"] == secret
    with pytest.raises(BrokerUnreachable) as refused:
        list_topics(config)
    assert secret not in str(refused.value) + refused.value.detail


def test_a_missing_topic_is_reported_with_the_nearest_name_and_the_command() -> None:
    error = topics._topic_missing("payment", {"payments": 2, "clicks": 1}, {"bootstrap.servers": "host:1"})
    assert error.what == "topic 'payment' does not exist at host:1"
    assert error.fix.startswith("did you mean 'payments'?")
    assert error.fix.endswith("tailrace broker topic payment --partitions 2 --bootstrap-servers host:1")


def test_a_missing_topic_unlike_any_other_has_no_suggestion() -> None:
    error = topics._topic_missing("orders", {"clicks": 1}, {"bootstrap.servers": "host:1"})
    assert "did you mean" not in error.fix


@pytest.mark.parametrize(
    ("rights", "login", "says"),
    [
        (frozenset(), {"sasl.username": "ann"}, "or user 'ann' may not see it"),
        (frozenset(), {}, "or this client may not see it"),
        (None, {"sasl.username": "ann"}, None),
        (BrokerUnreachable("gone"), {"sasl.username": "ann"}, "'ann' may not describe also looks missing"),
        (BrokerUnreachable("gone"), {}, None),
    ],
)
def test_a_hidden_topic_is_distinguished_from_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, rights: Any, login: dict[str, str], says: str | None
) -> None:
    def answer(_config: object, names: list[str]) -> dict[str, Any]:
        if isinstance(rights, Exception):
            raise rights
        return dict.fromkeys(names, rights)

    monkeypatch.setattr(topics, "topic_rights", answer)
    monkeypatch.setattr(topics, "_metadata", lambda _config: {"clicks": 1})
    with pytest.raises(TopicMissing) as missing:
        partition_counts({"bootstrap.servers": "host:1", **login}, ["payments"])
    assert ("may not" in str(missing.value)) is (says is not None)
    assert (says or "does not exist") in str(missing.value)


@given(
    counts=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 12)),
    left_out=st.sets(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 11))),
)
def test_the_partitions_that_offsets_leave_out_are_found(
    counts: dict[str, int], left_out: set[tuple[str, int]]
) -> None:
    offsets = {
        topic: {str(number): 0 for number in range(count) if (topic, number) not in left_out}
        for topic, count in counts.items()
    }
    expected = {f"{topic}-{number}" for topic, number in left_out if number < counts.get(topic, 0)}
    assert set(first_missing_partitions(json.dumps(offsets), counts)) == expected


def test_a_topic_without_any_offset_misses_all_its_partitions() -> None:
    assert first_missing_partitions("{}", {"payments": 2}) == ["payments-0", "payments-1"]
