"""Which brokers are asked where a source's records end."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tailrace.errors import TopicMissing
from tailrace.plan.streams import StreamRead
from tailrace.prepare import endpoint
from tailrace.running.visible_records import visible_records

CLUSTERS = {"one:9092": {"payments": {0: 5}, "both": {0: 7}}, "two:9092": {"customers": {0: 9}, "both": {0: 8}}}
READS = [StreamRead("kafka", {"kafka.bootstrap.servers": servers}) for servers in CLUSTERS]


@pytest.fixture(autouse=True)
def clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clusters, each with topics of its own."""

    def partition_counts(config: Mapping[str, Any], topics: Iterable[str]) -> dict[str, int]:
        here = CLUSTERS[config["bootstrap.servers"]]
        for topic in topics:
            if topic not in here:
                raise TopicMissing(f"topic {topic} does not exist")
        return {topic: len(here[topic]) for topic in topics}

    def visible_ends(config: Mapping[str, Any], counts: Mapping[str, int], *, committed: bool) -> Any:
        assert not committed
        return {topic: CLUSTERS[config["bootstrap.servers"]][topic] for topic in counts}

    monkeypatch.setattr(endpoint, "partition_counts", partition_counts)
    monkeypatch.setattr(endpoint, "visible_ends", visible_ends)


def test_each_source_is_asked_for_on_its_own_cluster() -> None:
    visible = visible_records(READS)
    assert visible(0, ["payments-0", "both-0"]) == {"payments-0": 5, "both-0": 7}
    assert visible(1, ["customers-0", "both-0"]) == {"customers-0": 9, "both-0": 8}


def test_what_cannot_be_asked_for_is_unknown() -> None:
    visible = visible_records(READS)
    assert visible(0, ["customers-0"]) == {}
    assert visible(2, ["payments-0"]) == {}
