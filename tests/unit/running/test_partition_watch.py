import logging
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tailrace.running import partition_watch
from tailrace.running.partition_watch import PartitionWatch

from ..conftest import WaitUntil
from .fakes import FakeControl


@pytest.fixture(autouse=True)
def _counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_watch, "_COUNT_EVERY_S", 0.0)


def watch(control: FakeControl, has_ended: Any = lambda: False, free: tuple[int, ...] = ()) -> PartitionWatch:
    its: Any = control
    counts = iter(free)
    return PartitionWatch("fraud", its, lambda: next(counts, 0), has_ended)


def test_new_partitions_get_the_slots_that_are_free_in_every_count() -> None:
    control = FakeControl()
    watching = watch(control, free=(3, 7, 2, 4))  # 7: another query is between two batches
    watching.poll()
    assert control.more_tasks is None, "nothing is counted without new partitions"
    control.new = ["payments-1"]
    watching.poll()
    assert (control.more_tasks, control.did) == (2, ["end batch"])


def test_new_partitions_end_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    control = FakeControl()
    watching = watch(control)
    watching.poll()
    assert control.did == []
    control.new = ["payments-1", "payments-2"]
    watching.poll()
    assert control.did == ["end batch"]
    assert [record.getMessage() for record in caplog.records] == [
        "query 'fraud': reading 2 new partitions: payments-1, payments-2"
    ]
    control.new = []  # the batch is about to end
    watching.poll()
    assert control.did == ["end batch"]


def test_no_batch_is_ended_after_the_end() -> None:
    control = FakeControl()
    control.new = ["payments-1"]
    ended = watch(control)
    ended.end()
    ended.poll()
    assert control.did == []


@pytest.mark.parametrize("failure", [Py4JNetworkError("gone"), OSError("no route")])
def test_a_spark_that_does_not_answer_is_asked_again_without_a_line(
    failure: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(partition_watch, "_POLL_EVERY_S", 0.001)
    control = FakeControl()
    control.failure, control.new = failure, ["payments-1"]
    watching = watch(control)
    watching.start()
    wait_until(lambda: control.asked >= 3, "it asks again")
    assert control.did == []
    control.failure = None
    wait_until(lambda: "end batch" in control.did, "Spark answers")
    watching.end()
    assert caplog.records == []


def test_an_unknown_failure_is_logged_and_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(partition_watch, "_POLL_EVERY_S", 0.001)
    control = FakeControl()
    control.failure = ValueError("what is this")
    watching = watch(control)
    watching.start()
    wait_until(lambda: control.asked >= 2, "it asks again")
    watching.end()
    assert "could not be checked for new partitions" in caplog.records[0].getMessage()


def test_it_ends_with_the_query(monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil) -> None:
    monkeypatch.setattr(partition_watch, "_POLL_EVERY_S", 0.001)
    control = FakeControl()
    watching = watch(control, has_ended=lambda: control.asked >= 3)
    watching.start()
    wait_until(lambda: not watching._thread.is_alive(), "the thread has ended")
    assert control.asked == 3
