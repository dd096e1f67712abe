"""A running query, without Spark: how a bounded run finds its end, and what a run tells of itself."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pyspark.errors import PySparkException

from tailrace.errors import BrokerUnreachable, QueryFailed
from tailrace.pipeline import Mode
from tailrace.runtime import running
from tailrace.runtime.bounded import Bound
from tailrace.runtime.running import RunningQuery

Ends = dict[str, dict[int, int]]


class FakeCheckpoint:
    location = "/checkpoints/fraud"

    def __init__(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False


class FakeCounts:
    def __init__(self, **malformed: int) -> None:
        self._malformed = malformed

    def malformed(self) -> dict[str, int]:
        return self._malformed

    def settle(self) -> None:
        """Nothing is on its way."""

    def close(self) -> None:
        """Nothing is open."""


class FakeQuery:
    """A query whose batches are listed beforehand; while it runs, one more is there at each look."""

    def __init__(self, *batches: int) -> None:
        self.isActive = True
        self.did: list[str] = []
        self._batches = [
            {"batchId": number, "numInputRows": 2, "sources": [{"endOffset": {"payments": {"0": offset}}}]}
            for number, offset in enumerate(batches)
        ]
        self._looks = -1

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's own name
        self._looks += self.isActive
        return self._batches[: self._looks]

    def stop(self) -> None:
        self.did.append("stop")
        self.isActive = False

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - PySpark's own name
        assert timeout is not None, "a wait without an end hears no Ctrl-C"
        self.did.append("await")
        return self.did.count("await") > 1


def end_after_batch(query: FakeQuery) -> None:
    query.did.append("end after batch")
    query.isActive = False  # as Spark says at once, though the batch goes on


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "failure_text", lambda _query: None)
    monkeypatch.setattr(running, "has_running_tasks", lambda _query: False)
    monkeypatch.setattr(running, "end_after_batch", end_after_batch)
    monkeypatch.setattr(running, "_LOOK_EVERY_S", 0.001)


def run(query: Any, counts: Sequence[Any] = (), checkpoint: FakeCheckpoint | None = None) -> RunningQuery:
    held: Any = checkpoint or FakeCheckpoint()
    return RunningQuery(query, name="fraud", mode=Mode.REALTIME, checkpoint=held, slots=None, counts=counts)


def bound(end: int, now: Callable[[], int] | None = None) -> Bound:
    def ask_again() -> list[Ends]:
        return [{"payments": {0: end if now is None else now()}}]

    return Bound([{"payments": {0: end}}], ask_again)


def test_a_bounded_run_ends_at_the_first_checkpoint_that_has_everything_in_it() -> None:
    query = FakeQuery(1, 3, 5, 5, 5)
    bounded = run(query)
    bounded.bound = bound(5)
    assert bounded.wait(20)
    assert query.did == ["stop"]
    assert (bounded.summary().batches, bounded.summary().input_rows) == (3, 6)


def test_a_bounded_run_into_which_more_arrives_completes_the_batch_that_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([False, False, True])
    monkeypatch.setattr(running, "has_running_tasks", lambda _query: next(answers))
    query = FakeQuery(5)
    bounded = run(query)
    bounded.bound = bound(5, now=lambda: 6)
    assert bounded.wait(20)
    assert query.did == ["end after batch", "await", "await"]
    assert next(answers, None) is None, "not while the batch is still being planned"


def test_a_broker_that_does_not_answer_at_the_end_of_a_bounded_run_is_no_reason_to_end_it_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent() -> int:
        raise BrokerUnreachable("nobody answers")

    monkeypatch.setattr(running, "has_running_tasks", lambda _query: True)
    query = FakeQuery(5)
    bounded = run(query)
    bounded.bound = bound(5, now=silent)
    assert bounded.wait(20)
    assert query.did[0] == "end after batch"


def test_a_bounded_run_that_has_not_read_everything_goes_on() -> None:
    query = FakeQuery(1, 2, 3)
    bounded = run(query)
    bounded.bound = bound(5)
    assert not bounded.wait(0.05)
    assert query.did == []


def test_a_bounded_run_without_a_completed_batch_goes_on_even_where_nothing_is_to_be_read() -> None:
    query = FakeQuery()
    bounded = run(query)
    bounded.bound = bound(0)
    assert not bounded.wait(0.05)
    assert query.did == []


def test_a_run_without_an_end_ends_only_when_told_to() -> None:
    query, stop = FakeQuery(5, 5), threading.Event()
    endless = run(query)
    assert not endless.wait(0.05)
    stop.set()
    assert not endless.wait(20, stop)
    assert query.did == []


def test_a_failure_in_the_last_batch_of_a_bounded_run_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    query, checkpoint = FakeQuery(5), FakeCheckpoint()

    def fail(_timeout: float) -> None:
        raise PySparkException("it ended")

    monkeypatch.setattr(running, "has_running_tasks", lambda _query: True)
    monkeypatch.setattr(query, "awaitTermination", fail)
    monkeypatch.setattr(running, "failure_text", lambda _query: "java.lang.IllegalStateException: it is broken")
    bounded = run(query, checkpoint=checkpoint)
    bounded.bound = bound(5, now=lambda: 6)
    with pytest.raises(QueryFailed) as failed:
        bounded.wait(20)
    assert failed.value.why == "it is broken"
    assert not checkpoint.held


def test_a_summary_adds_up_what_every_source_could_not_read() -> None:
    stopped = run(FakeQuery(1), [FakeCounts(not_json=2, not_utf8=1), FakeCounts(not_json=3), FakeCounts()])
    assert stopped.stop().malformed == {"not_json": 5, "not_utf8": 1}
    assert run(FakeQuery(1)).stop().malformed == {}


def test_counts_that_cannot_be_asked_for_any_more_do_not_hide_the_rest() -> None:
    class Gone(FakeCounts):
        asked = 0

        def malformed(self) -> dict[str, int]:
            self.asked += 1
            if self.asked > 1:
                raise OSError("Spark's JVM is gone")
            return {"not_json": 2}

    stopped = run(FakeQuery(1), [Gone()])
    assert stopped.summary().malformed == {"not_json": 2}
    summary = stopped.stop()
    assert summary.malformed == {"not_json": 2}, "what was known last"
    assert (summary.name, summary.mode, summary.checkpoint) == ("fraud", "realtime", "/checkpoints/fraud")


def test_stopping_waits_for_the_tasks_whose_counts_are_still_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, True, False])
    monkeypatch.setattr(running, "has_running_tasks", lambda _query: next(answers))
    query, checkpoint = FakeQuery(1), FakeCheckpoint()
    run(query, [FakeCounts()], checkpoint).stop()
    assert next(answers, None) is None
    assert query.did == ["stop"]
    assert not checkpoint.held
