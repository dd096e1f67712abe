from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.dead_letters import queue as module
from tailrace.dead_letters.queue import Queue, open_queue
from tailrace.dead_letters.selection import Selection
from tailrace.errors import DefinitionError, OptionRefused
from tailrace.kafka.records import TopicRecord
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline

from .letters import record


def shop(**changes: Any) -> Pipeline:
    settings: dict[str, Any] = {
        "name": "shop",
        "source": KafkaSource("orders", "id long"),
        "transform": lambda orders: orders,
        "sink": KafkaSink("decisions"),
    }
    return Pipeline(**(settings | changes))


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[int, int]]:
    """The ends of the topics that exist."""
    existing: dict[str, dict[int, int]] = {}
    monkeypatch.setattr(
        module, "existing_partitions", lambda _, topic: len(existing[topic]) if topic in existing else None
    )
    monkeypatch.setattr(module, "log_ends", lambda _, counts: {topic: existing[topic] for topic in counts})
    return existing


def test_a_queue_has_the_ends_of_its_topic(topics: dict[str, dict[int, int]]) -> None:
    topics["shop.dead-letters"] = {0: 3, 1: 0}
    queue = open_queue(shop(), "host:1")
    assert queue.exists
    assert (queue.topic, queue.ends, queue.bootstrap_servers) == ("shop.dead-letters", {0: 3, 1: 0}, "host:1")


def test_a_topic_need_not_exist(topics: dict[str, dict[int, int]]) -> None:
    queue = open_queue(shop(dead_letters="rejected"), "host:1")
    assert not queue.exists
    assert queue.topic == "rejected"
    assert list(queue.letters(Selection())) == []


@pytest.mark.usefixtures("topics")
def test_the_client_has_the_login_of_the_sink() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="pw";'
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": jaas}
    queue = open_queue(shop(sink=KafkaSink("decisions", options=options)), "host:1")
    assert (queue.config["sasl.username"], queue.config["security.protocol"]) == ("ann", "SASL_SSL")


def test_a_java_keystore_is_refused_with_the_alternative() -> None:
    sink = KafkaSink("decisions", options={"kafka.ssl.truststore.location": "trust.jks"})
    with pytest.raises(OptionRefused) as refused:
        open_queue(shop(sink=sink), "host:1")
    assert "PEM" in refused.value.fix


@pytest.mark.parametrize("malformed", ["drop", "fail"])
def test_a_pipeline_without_dead_letters_is_refused(malformed: str) -> None:
    with pytest.raises(DefinitionError, match="writes no dead letters") as refused:
        open_queue(shop(malformed=malformed), "host:1")
    assert f"malformed='{malformed}'" in refused.value.why


def test_only_letters_of_the_pipeline_are_yielded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def read(_config: object, topic: str, **options: Any) -> Iterator[TopicRecord]:
        asked.append((topic, options))
        yield record(1)
        yield record(2, pipeline="other")
        yield record(3, reason="not_utf8")
        yield TopicRecord(topic, 0, 4, None, b"sent by hand", ())

    monkeypatch.setattr(module, "read_records", read)
    queue = Queue(shop(), "rejected", {"bootstrap.servers": "host:1"}, {0: 5})
    assert [each.record.offset for each in queue.letters(Selection())] == [1, 3]
    assert [each.record.offset for each in queue.letters(Selection.of(reasons=["not_utf8"]))] == [3]
    assert asked[0] == ("rejected", {"ends": {0: 5}})
