import logging
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tailrace.errors import BrokerUnreachable
from tailrace.running import partition_watch
from tailrace.running.partition_watch import PartitionWatch

from ..conftest import WaitUntil
from .fakes import FakeControl, FakeEndpoint


def watch(control: FakeControl, *endpoints: FakeEndpoint, has_ended: Any = lambda: False) -> PartitionWatch:
    given: Any = endpoints
    its: Any = control
    return PartitionWatch("fraud", given, its, has_ended)


def reading(*partitions: str) -> FakeControl:
    control = FakeControl()
    control.reads = set(partitions)
    return control


def test_a_new_partition_ends_the_batch_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    control, endpoint = reading("payments-0"), FakeEndpoint({"payments": [0]})
    watching = watch(control, endpoint)
    watching.look()
    assert control.did == []
    endpoint.topics["payments"] = [0, 0, 0]
    watching.look()
    assert control.did == ["end batch"]
    assert [record.getMessage() for record in caplog.records] == [
        "query 'fraud': reading 2 new partitions: payments-1, payments-2"
    ]
    control.reads |= {"payments-1", "payments-2"}  # the next batch reads them
    watching.look()
    assert control.did == ["end batch"]


def test_a_new_topic_of_a_pattern_is_read_too() -> None:
    control = reading("payments-0")
    watch(control, FakeEndpoint({"payments": [0], "payments-eu": [0]})).look()
    assert control.did == ["end batch"]


def test_every_source_is_watched() -> None:
    control = reading("payments-0", "refunds-0")
    watch(control, FakeEndpoint({"payments": [0]}), FakeEndpoint({"refunds": [0]})).look()
    assert control.did == []
    watch(control, FakeEndpoint({"payments": [0]}), FakeEndpoint({"refunds": [0, 0]})).look()
    assert control.did == ["end batch"]


def test_a_deleted_topic_is_no_new_partition() -> None:
    control = reading("payments-0", "refunds-0")
    watch(control, FakeEndpoint({"payments": [0]})).look()
    assert control.did == []


def test_a_source_with_assigned_partitions_gains_none() -> None:
    control = reading("payments-2", "payments-3")
    endpoint = FakeEndpoint({"payments": [0, 0]}, assign='{"payments": [2, 3]}')
    watch(control, endpoint).look()
    assert (control.did, endpoint.asked) == ([], 0)


def test_nothing_is_asked_before_a_batch_is_planned() -> None:
    control, endpoint = reading(), FakeEndpoint({"payments": [0]})
    watch(control, endpoint).look()
    assert (control.did, endpoint.asked) == ([], 0)


def test_no_batch_is_ended_after_the_end() -> None:
    control = reading("payments-0")
    ended = watch(control, FakeEndpoint({"payments": [0, 0]}))
    ended.end()
    ended.look()
    assert control.did == []


@pytest.mark.parametrize("failure", [BrokerUnreachable("no answer"), Py4JNetworkError("gone"), OSError("no route")])
def test_brokers_that_do_not_answer_are_asked_again_without_a_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(partition_watch, "_ASK_EVERY_S", 0.001)
    control, endpoint = reading("payments-0"), FakeEndpoint({"payments": [0, 0]})
    endpoint.failure = failure
    watching = watch(control, endpoint)
    watching.start()
    wait_until(lambda: endpoint.asked >= 3, "it asks again")
    assert control.did == []
    endpoint.failure = None
    wait_until(lambda: "end batch" in control.did, "the broker is back")
    watching.end()
    assert caplog.records == []


def test_an_unknown_failure_is_logged_and_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(partition_watch, "_ASK_EVERY_S", 0.001)
    endpoint = FakeEndpoint({"payments": [0]})
    endpoint.failure = ValueError("what is this")
    watching = watch(reading("payments-0"), endpoint)
    watching.start()
    wait_until(lambda: endpoint.asked >= 2, "it asks again")
    watching.end()
    assert "could not be checked for new partitions" in caplog.records[0].getMessage()


def test_it_ends_with_the_query(monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil) -> None:
    monkeypatch.setattr(partition_watch, "_ASK_EVERY_S", 0.001)
    endpoint = FakeEndpoint({"payments": [0]})
    watching = watch(reading("payments-0"), endpoint, has_ended=lambda: endpoint.asked >= 3)
    watching.start()
    wait_until(lambda: not watching._thread.is_alive(), "the thread has ended")
    assert endpoint.asked == 3
