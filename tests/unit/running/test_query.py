"""A running query, without Spark: how a bounded run finds its end, how a run fails, and what it tells of itself."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tailrace.engine import FunctionCost
from tailrace.errors import QueryFailed
from tailrace.pipeline import Mode
from tailrace.plan.bound import Bound
from tailrace.preflight.report import CheckReport
from tailrace.running import query as running
from tailrace.running.query import RunningQuery

Ends = dict[str, dict[int, int]]
REPORT = CheckReport("fraud", Mode.REALTIME, None, 2, ())


class FakeCheckpoint:
    location = "/checkpoints/fraud"

    def __init__(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False

    def save_costs(self, costs: object) -> None:
        assert self.held


class FakeCounts:
    def __init__(self, **malformed: int) -> None:
        self._malformed = malformed

    def malformed(self) -> dict[str, int]:
        return self._malformed

    def read(self) -> int:
        return sum(self._malformed.values())

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


class FakeWatch:
    """Says no so many times, as while the next batch is being planned."""

    def __init__(self, query: Any, refusals: int = 0) -> None:
        self._query = query
        self.refusals = refusals

    def end_after(self, completed: int) -> bool:
        assert completed == 0
        if self.refusals:
            self.refusals -= 1
            return False
        self._query.did.append("end after batch")
        self._query.isActive = False  # as Spark says at once, though the batch goes on
        return True

    def has_ended(self) -> bool:
        self._query.did.append("look")
        return bool(self._query.did.count("look") > 1)

    def close(self) -> None:
        """Nothing is open."""


def watching(query: FakeQuery) -> Any:
    return FakeWatch(query)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "failure_text", lambda _query: None)
    monkeypatch.setattr(running, "has_tasks_at_work", lambda _query: False)
    monkeypatch.setattr(running, "_LOOK_EVERY_S", 0.001)


def run(
    query: Any, counts: Sequence[Any] = (), checkpoint: FakeCheckpoint | None = None, costs: Any = None
) -> RunningQuery:
    held: Any = checkpoint or FakeCheckpoint()
    mode = Mode.REALTIME
    return RunningQuery(query, name="fraud", mode=mode, checkpoint=held, report=REPORT, counts=counts, costs=costs)


def bound(end: int, *, alone: bool = True) -> Bound:
    return Bound([{"payments": {0: end}}], alone)


def test_a_bounded_run_ends_at_the_first_checkpoint_that_has_everything_in_it() -> None:
    query = FakeQuery(1, 3, 5, 5, 5)
    bounded = run(query)
    bounded.watch = watching(query)
    bounded.end_at(bound(5))
    assert bounded.wait(20)
    assert query.did == ["stop"]
    assert (bounded.summary().batches, bounded.summary().input_rows) == (3, 6)


def test_a_bounded_run_into_which_more_may_arrive_completes_the_batch_that_it_is_in() -> None:
    query = FakeQuery(5)
    watch: Any = FakeWatch(query, refusals=2)
    bounded = run(query)
    bounded.watch = watch
    bounded.end_at(bound(5, alone=False))
    assert bounded.wait(20)
    assert query.did == ["end after batch", "look", "look"]
    assert watch.refusals == 0, "not while the batch is still being planned"


def test_a_bounded_run_that_has_not_read_everything_goes_on() -> None:
    query = FakeQuery(1, 2, 3)
    bounded = run(query)
    bounded.watch = watching(query)
    bounded.end_at(bound(5))
    assert not bounded.wait(0.05)
    assert query.did == []


def test_a_bounded_run_without_a_completed_batch_goes_on_even_where_nothing_is_to_be_read() -> None:
    query = FakeQuery()
    bounded = run(query)
    bounded.watch = watching(query)
    bounded.end_at(bound(0))
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

    monkeypatch.setattr(running, "failure_text", lambda _query: "java.lang.IllegalStateException: it is broken")
    bounded = run(query, checkpoint=checkpoint)
    bounded.watch = watching(query)
    bounded.end_at(bound(5, alone=False))
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
    monkeypatch.setattr(running, "has_tasks_at_work", lambda _query: next(answers))
    query, checkpoint = FakeQuery(1), FakeCheckpoint()
    run(query, [FakeCounts()], checkpoint).stop()
    assert next(answers, None) is None
    assert query.did == ["stop"]
    assert not checkpoint.held


class UnstoppableQuery(FakeQuery):
    """A query whose JVM answers with an error, or not at all."""

    error: Exception = Py4JError("An error occurred while calling o42.stop")

    def stop(self) -> None:
        self.did.append("stop")
        raise self.error


@pytest.fixture
def jvm_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "has_jvm_ended", lambda _failed: False)


def failed_query(monkeypatch: pytest.MonkeyPatch) -> FakeQuery:
    monkeypatch.setattr(running, "failure_text", lambda _query: "java.lang.IllegalStateException: it is broken")
    query = FakeQuery(1)
    query.isActive = False
    return query


def test_stopping_a_query_that_had_failed_raises_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    query, checkpoint = failed_query(monkeypatch), FakeCheckpoint()
    failed = run(query, checkpoint=checkpoint)
    with pytest.raises(QueryFailed) as raised:
        failed.stop()
    assert raised.value.why == "it is broken"
    assert query.did == ["stop"]
    assert not checkpoint.held


def test_stopping_does_not_repeat_the_failure_that_waiting_has_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = run(failed_query(monkeypatch))
    with pytest.raises(QueryFailed):
        failed.wait(20)
    assert failed.stop().name == "fraud"


def test_leaving_the_block_of_a_failed_query_raises_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QueryFailed), run(failed_query(monkeypatch)):
        pass


def test_what_a_block_raises_is_kept_if_the_query_cannot_be_stopped(jvm_alive: None) -> None:
    checkpoint = FakeCheckpoint()
    with pytest.raises(ZeroDivisionError) as raised, run(UnstoppableQuery(1), checkpoint=checkpoint):
        raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert "could not be stopped" in note
    assert checkpoint.held, "the query may still run"


def test_a_query_that_cannot_be_stopped_keeps_its_checkpoint_until_it_is(jvm_alive: None) -> None:
    query, checkpoint = UnstoppableQuery(1), FakeCheckpoint()
    unstoppable = run(query, checkpoint=checkpoint)
    with pytest.raises(QueryFailed, match="could not be stopped"):
        unstoppable.stop()
    assert checkpoint.held
    query.isActive = False  # the error came with a query that ended all the same
    unstoppable.stop()
    assert not checkpoint.held


def test_an_error_of_a_jvm_that_lives_is_not_taken_for_its_death(
    jvm_alive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, checkpoint = FakeQuery(1), FakeCheckpoint()
    alive = run(query, checkpoint=checkpoint)

    def fail() -> None:
        raise Py4JError("An error occurred while calling o42.recentProgress")

    monkeypatch.setattr(alive, "_note_progress", fail)
    with pytest.raises(QueryFailed, match="did not answer"):
        alive.wait(20)
    assert checkpoint.held


def test_the_death_of_the_jvm_is_the_one_error_of_a_block() -> None:
    class Dead(UnstoppableQuery):
        error = Py4JNetworkError("Answer from Java side is empty")

        @property
        def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's own name
            raise self.error

    checkpoint = FakeCheckpoint()
    with pytest.raises(QueryFailed, match="JVM ended") as raised, run(Dead(1), checkpoint=checkpoint) as dead:
        dead.wait(20)
    assert not hasattr(raised.value, "__notes__")
    assert not checkpoint.held
    with pytest.raises(QueryFailed, match="JVM ended"):
        run(Dead(1)).stop()


def test_costs_are_saved_while_the_checkpoint_is_locked() -> None:
    class Costs(FakeCounts):
        def read(self) -> dict[str, FunctionCost]:
            return {"risk": FunctionCost(3, 1, 3, 0.1, 0.1, 0.1, 0, 0)}

    saved: list[bool] = []
    checkpoint = FakeCheckpoint()
    checkpoint.save_costs = lambda _costs: saved.append(checkpoint.held)  # type: ignore[method-assign]
    held: Any = checkpoint
    costs: Any = Costs()
    query: Any = FakeQuery(1)
    RunningQuery(query, name="fraud", mode=Mode.REALTIME, checkpoint=held, report=REPORT, costs=costs).stop()
    assert saved[0]


@pytest.mark.parametrize(("mode", "read", "uncommitted"), [
    (Mode.REALTIME, 7, 3),
    (Mode.REALTIME, 4, 0),
    (Mode.MICROBATCH, 7, 0),
])  # fmt: skip
def test_what_was_read_since_the_last_checkpoint_is_counted_in_real_time(
    mode: Mode, read: int, uncommitted: int
) -> None:
    checkpoint, counts, query = FakeCheckpoint(), FakeCounts(not_json=read), FakeQuery(1, 2)  # two rows in each batch
    given: Any = (query, checkpoint, [counts])
    stopped = RunningQuery(given[0], name="fraud", mode=mode, checkpoint=given[1], report=REPORT, counts=given[2])
    assert not stopped.wait(0.05)
    assert stopped.stop().uncommitted_rows == uncommitted
