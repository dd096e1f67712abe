from typing import Any

import pytest

from tailrace.errors import BrokerUnreachable
from tailrace.kafka import topics
from tailrace.kafka.ports import free_ports
from tailrace.plan.streams import StreamRead
from tailrace.prepare.topics import QueryTopics, SourceTopics, query_topics

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "payments"}
PATTERN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribePattern": "pay.*"}
NO_SPARK: Any = None
"""None of these gets as far as asking through Spark."""


def test_all_partitions_of_all_topics_are_read_at_once() -> None:
    assert SourceTopics({"payments": 3, "refunds": 2}).total == 5


@pytest.mark.parametrize(("most", "tasks"), [(None, 12), (100, 12), (10, 12), (4, 6), (2, 4), (1, 2)])
def test_each_source_is_read_by_at_most_so_many_tasks(most: int | None, tasks: int) -> None:
    """One source has ten partitions, the other has two."""
    both = QueryTopics((SourceTopics({"payments": 7, "orders": 3}), SourceTopics({"refunds": 2})))
    assert both.tasks(most) == tasks


def test_a_source_that_is_read_twice_has_twice_as_many_tasks() -> None:
    both = QueryTopics((SourceTopics({"payments": 7}), SourceTopics({"refunds": 2})))
    assert (both.tasks(None, (2, 1)), both.tasks(4, (1, 3))) == (16, 10)


def test_the_tasks_are_unknown_if_one_source_is() -> None:
    assert QueryTopics((SourceTopics({"payments": 7}), None)).tasks(None) is None
    assert QueryTopics().tasks(2) is None


@pytest.mark.parametrize(
    "read",
    [
        StreamRead("rate", {"rowsPerSecond": "5"}),
        StreamRead("rate", SERVERS),
        StreamRead("kafka", {"subscribe": "payments"}),
        StreamRead("kafka", PATTERN | {"kafka.ssl.truststore.location": "/certs/trust.jks"}),
        StreamRead("kafka", PATTERN | {"kafka.SASL.jaas.config": "Krb5LoginModule required;"}),
    ],
    ids=["other source", "other source with kafka options", "no address", "java trust store", "kerberos"],
)
def test_an_unreachable_source_is_none_without_asking_a_broker(read: StreamRead) -> None:
    topics = query_topics([read], NO_SPARK)
    assert topics.sources == (None,)
    assert topics.tasks(None) is None
    assert topics.tasks(4) is None


@pytest.mark.parametrize(
    "options",
    [
        {"SUBSCRIBE": "payments"},
        {"assign": '{"payments": [0, 1]}'},
        {"subscribePattern": "pay.*"},
    ],
)
def test_each_kafka_source_is_looked_up_at_its_own_address(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "ASK_TIMEOUT_S", 0.1)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(BrokerUnreachable, match=address):
        query_topics([StreamRead("kafka", {"Kafka.Bootstrap.Servers": address} | options)], NO_SPARK)
