import logging
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from tailrace.running import topic_watch
from tailrace.running.topic_watch import ADOPTED, NO_IDS, TopicWatch

from ..conftest import WaitUntil
from .fakes import FakeControl

RECREATED = {"topic": "payments", "offsets": "10 in partition 0", "accepted": True}
AGAIN = "topic 'payments' was deleted and created again"
READ_UNTIL = "the old topic was read to offset 10 in partition 0; later records are lost if there were any"
SHORTER = "payments-0 ends before the query's position"
POSITION_AND_END = (
    "the query's position and the partition's end are 9 and 4: the brokers lost records, or the topic was recreated "
    "before Tailrace recorded its id"
)


class FakeOutputs:
    """The topics that a query writes to."""

    def __init__(self) -> None:
        self.recreated: list[str] = []
        self.closed = False

    def look(self) -> list[str]:
        recreated, self.recreated = self.recreated, []
        return recreated

    def close(self) -> None:
        self.closed = True


def watch(control: FakeControl, outputs: FakeOutputs | None = None) -> TopicWatch:
    its: Any = control
    topics: Any = outputs
    return TopicWatch("fraud", its, topics, lambda: False)


@pytest.mark.parametrize(
    ("notice", "sentence"),
    [
        ({"kind": "adopted"}, ADOPTED),
        ({"kind": "no-ids"}, NO_IDS),
        (
            {"kind": "recreated", **RECREATED},
            f"{AGAIN}; continuing at the beginning of the new topic ({READ_UNTIL})",
        ),
        (
            {"kind": "recreated-idle", **RECREATED},
            f"{AGAIN}; the query will continue at the beginning of the new topic when its next batch starts",
        ),
        (
            {"kind": "recreated-idle", **RECREATED, "accepted": False},
            f"{AGAIN}; the query will fail when its next batch starts",
        ),
        (
            {"kind": "shorter", "topic": "payments-0", "offsets": "9 and 4", "accepted": True},
            f"{SHORTER}; continuing at the end of the partition, without the records before it ({POSITION_AND_END})",
        ),
        (
            {"kind": "divergent", "topic": "payments-0", "offsets": "4 to 8", "accepted": True},
            (
                "payments-0 has other records now than those that the query has read; continuing with the first of "
                "the new records (the offsets 4 to 8 were written again: a broker without the latest records became "
                "the leader)"
            ),
        ),
        (
            {"kind": "missing", "topic": "payments", "offsets": "", "accepted": False},
            "topic 'payments' no longer exists; the query fails with its next batch unless it exists again",
        ),
        (
            {"kind": "missing", "topic": "payments", "offsets": "", "accepted": True},
            "topic 'payments' no longer exists; the query continues with the others",
        ),
    ],
)
def test_each_notice_is_a_warning(notice: dict[str, Any], sentence: str, caplog: pytest.LogCaptureFixture) -> None:
    control = FakeControl()
    watching = watch(control)
    control.said = [notice]
    watching.poll()
    watching.poll()
    assert [each.getMessage() for each in caplog.records] == [f"query 'fraud': {sentence}"]
    assert {each.levelno for each in caplog.records} == {logging.WARNING}


def test_topics_that_are_written_to_are_checked_from_time_to_time(caplog: pytest.LogCaptureFixture) -> None:
    outputs = FakeOutputs()
    watching = watch(FakeControl(), outputs)
    outputs.recreated = ["decisions"]
    for _ in range(4):
        watching.poll()
    assert caplog.records == []
    watching.poll()
    assert [each.getMessage() for each in caplog.records] == [
        "query 'fraud': topic 'decisions', which it writes to, was deleted and created again: earlier results are gone"
    ]


def test_the_last_notice_is_logged_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    control, outputs = FakeControl(), FakeOutputs()
    watching = watch(control, outputs)
    control.said = [{"kind": "adopted"}]
    watching.end()
    watching.end()
    assert [each.getMessage() for each in caplog.records] == [f"query 'fraud': {ADOPTED}"]
    assert outputs.closed


def test_a_spark_that_does_not_answer_is_asked_again_without_a_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    monkeypatch.setattr(topic_watch, "_POLL_EVERY_S", 0.001)
    monkeypatch.setattr(topic_watch, "has_jvm_ended", lambda _: False)
    control = FakeControl()
    control.failure = Py4JNetworkError("gone")
    watching = watch(control)
    watching.start()
    wait_until(lambda: control.asked >= 3, "it asks again")
    assert caplog.records == []
    control.failure, control.said = None, [{"kind": "no-ids"}]
    wait_until(lambda: bool(caplog.records), "Spark answers")
    watching.end()
