"""A running query, without Spark: how it is waited for and stopped, how it fails, and what its summary contains."""

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from tailrace.engine import FunctionCost
from tailrace.errors import QueryFailed, QueryRefused
from tailrace.pipeline import Mode
from tailrace.preflight.report import CheckReport
from tailrace.running import progress
from tailrace.running import query as running
from tailrace.running.ending import Ending
from tailrace.running.query import RunningQuery
from tailrace.running.saving import SavedCheckpoint
from tailrace.running.signals import stop_on_signals

from .fakes import FakeCheckpoint, FakeControl, FakeCounts, FakeEndpoint, FakeQuery, at

REPORT = CheckReport("fraud", Mode.REALTIME, None, 2, ())


class EndingControl(FakeControl):
    """A control whose query ends as soon as that is requested."""

    def __init__(self, query: FakeQuery) -> None:
        super().__init__()
        self._query = query

    def stop(self) -> None:
        super().stop()
        self._query.isActive = False
        self.ended = True

    def has_ended(self) -> bool:
        return self.ended or not self._query.isActive


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "failure_text", lambda _query: None)
    monkeypatch.setattr(running, "has_tasks_at_work", lambda _query: False)
    monkeypatch.setattr(running, "_POLL_EVERY_S", 0.001)
    monkeypatch.setattr(progress, "_NOTE_EVERY_S", 0.0)


def run(
    query: Any,
    counts: Sequence[Any] = (),
    checkpoint: FakeCheckpoint | None = None,
    costs: Any = None,
    *,
    mode: Mode = Mode.REALTIME,
    control: FakeControl | None = None,
) -> RunningQuery:
    held: Any = checkpoint or FakeCheckpoint()
    given: Any = control or EndingControl(query)
    ending = Ending(query, mode, given, 10.0)
    return RunningQuery(
        query, name="fraud", mode=mode, checkpoint=held, report=REPORT, counts=counts, costs=costs, ending=ending
    )


def without_control(query: Any, counts: Any = ()) -> RunningQuery:
    held: Any = FakeCheckpoint()
    ending = Ending(query, Mode.REALTIME, None, 10.0)
    return RunningQuery(
        query, name="fraud", mode=Mode.REALTIME, checkpoint=held, report=REPORT, counts=counts, ending=ending
    )


def test_a_wait_ends_with_its_timeout_or_its_event_and_stops_nothing() -> None:
    query, stop = FakeQuery(5, 5), threading.Event()
    endless = run(query)
    assert not endless.wait(0.05)
    stop.set()
    assert not endless.wait(20, stop)
    assert query.did == []


def test_a_wait_lasts_until_the_last_commit_although_spark_calls_the_query_inactive() -> None:
    query, control = FakeQuery(5), FakeControl()
    query.isActive = False
    committing = run(query, control=control)
    assert not committing.wait(0.05)
    control.ended = True
    assert committing.wait(20)


def test_the_end_of_a_bounded_run_is_noticed_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL_EVERY_S", 20)
    query, control = FakeQuery(5), FakeControl()
    bounded = run(query, control=control)
    bounded.bounded = True
    threading.Timer(0.05, setattr, [control, "ended", True]).start()
    began = time.monotonic()
    assert bounded.wait()
    assert time.monotonic() - began < 10


def test_the_summary_after_a_stop_asks_spark_nothing_more() -> None:
    stopped = run(FakeQuery(5))
    assert stopped.stop() is stopped.summary()


def test_a_stop_saves_what_was_read_and_repeats_nothing() -> None:
    query, checkpoint = FakeQuery(5), FakeCheckpoint()
    control = EndingControl(query)
    summary = run(query, checkpoint=checkpoint, control=control).stop()
    assert summary.repeats == ""
    assert control.did == ["stop", "close"]
    assert not checkpoint.held


def test_a_stop_that_takes_too_long_says_that_records_are_repeated() -> None:
    query, checkpoint = FakeQuery(5), FakeCheckpoint()
    summary = run(query, checkpoint=checkpoint, control=FakeControl()).stop(timeout_s=0.01)
    assert summary.repeats == "its batch did not end within 0.01 s"
    assert query.did == ["stop"]
    assert not checkpoint.held


def test_a_query_that_spark_stops_between_two_batches_repeats_nothing() -> None:
    class Asking(FakeControl):
        """A control whose query asks a silent broker for offsets until Spark interrupts it."""

        def has_ended(self) -> bool:
            return not query.isActive

    query = FakeQuery(5)
    assert run(query, mode=Mode.MICROBATCH, control=Asking()).stop(timeout_s=0.01).repeats == ""
    assert query.did == ["stop"]


def test_without_control_a_stop_says_that_records_are_repeated() -> None:
    query = FakeQuery(5)
    assert without_control(query).stop().repeats.startswith("Spark's own Kafka source")
    assert query.did == ["stop"]


def test_a_failure_during_a_stop_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    query, checkpoint = FakeQuery(5), FakeCheckpoint()
    broken = "java.lang.IllegalStateException: it is broken"
    monkeypatch.setattr(running, "failure_text", lambda asked: None if asked.isActive else broken)
    with pytest.raises(QueryFailed) as failed:
        run(query, checkpoint=checkpoint).stop()
    assert failed.value.why == "it is broken"
    assert not checkpoint.held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_at_once(number: signal.Signals) -> None:
    class Impatient(FakeControl):
        """A control whose query does not end, and a user who does not wait for it."""

        def stop(self) -> None:
            super().stop()
            signal.raise_signal(number)

    query, checkpoint, control = FakeQuery(5), FakeCheckpoint(), Impatient()
    stopped = run(query, checkpoint=checkpoint, control=control)

    def run_until_signalled() -> None:
        with stop_on_signals() as asked, stopped:
            signal.raise_signal(number)
            assert not stopped.wait(20, asked)

    with pytest.raises(KeyboardInterrupt):
        run_until_signalled()
    assert control.did == ["stop", "close"]
    assert query.did == ["stop"]
    assert not checkpoint.held
    assert stopped.summary().repeats == "the stop was interrupted"


def test_a_stop_that_saves_nothing_does_not_wait_for_the_batch() -> None:
    query, checkpoint, control = FakeQuery(5), FakeCheckpoint(), FakeControl()
    stopped = run(query, checkpoint=checkpoint, control=control)
    stopped.skip_saving()
    assert stopped.stop(60).repeats == "the stop was interrupted"
    assert (query.did, control.did) == (["stop"], ["close"])
    assert not checkpoint.held


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_last_counts_arrive_leaves_nothing_locked(number: signal.Signals) -> None:
    class Interrupting(FakeCounts):
        def settle(self) -> None:
            signal.raise_signal(number)

    query, checkpoint = FakeQuery(5), FakeCheckpoint()
    control = EndingControl(query)
    stopped = run(query, [Interrupting()], checkpoint, control=control)
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt), stop_on_signals(stop):
        stopped.stop()
    assert not checkpoint.held
    assert control.did == ["stop", "close"]
    assert stopped.is_over


@pytest.mark.parametrize("ended", [True, False])
def test_a_third_signal_releases_the_checkpoint_of_a_query_that_has_ended(*, ended: bool) -> None:
    class Stubborn(FakeQuery):
        def stop(self) -> None:
            super().stop()
            self.isActive = not ended
            raise KeyboardInterrupt

    class Impatient(FakeControl):
        def stop(self) -> None:
            raise KeyboardInterrupt

    query, checkpoint = Stubborn(5), FakeCheckpoint()
    with pytest.raises(KeyboardInterrupt):
        run(query, checkpoint=checkpoint, control=Impatient()).stop()
    assert checkpoint.held is not ended, "a query that may run keeps its checkpoint"


def test_a_checkpoint_on_request_returns_what_was_saved() -> None:
    control = FakeControl()
    control.committed = {7}
    query = run(FakeQuery(5), control=control)
    assert query.checkpoint() == SavedCheckpoint(7, 80.0)
    assert query.checkpoint_location == "/checkpoints/fraud"


def test_without_control_there_is_no_checkpoint_on_request() -> None:
    with pytest.raises(QueryRefused, match="cannot be checkpointed on request") as refused:
        without_control(FakeQuery(5)).checkpoint()
    assert "tailrace doctor" in refused.value.fix


def test_a_stopped_query_takes_no_checkpoint() -> None:
    stopped = run(FakeQuery(5))
    stopped.stop()
    with pytest.raises(QueryFailed, match="is not running"):
        stopped.checkpoint()


def test_a_query_that_is_being_stopped_takes_no_checkpoint() -> None:
    refused: list[QueryFailed] = []

    class Saved(EndingControl):
        """A control whose query is asked for a checkpoint while it is being stopped."""

        def stop(self) -> None:
            with pytest.raises(QueryFailed, match="is not running") as raised:
                stopped.checkpoint()
            refused.append(raised.value)
            super().stop()

    query = FakeQuery(5)
    stopped = run(query, control=Saved(query))
    stopped.stop()
    assert "being stopped" in refused[0].why


def test_a_checkpoint_of_a_failed_query_raises_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(QueryFailed) as failed:
        run(failed_query(monkeypatch)).checkpoint()
    assert failed.value.why == "it is broken"


def test_a_checkpoint_that_spark_does_not_answer_is_an_error(jvm_alive: None) -> None:
    class Silent(FakeControl):
        def end_batch(self) -> None:
            raise Py4JError("An error occurred while calling o42.endBatch")

    with pytest.raises(QueryFailed, match="did not answer"):
        run(FakeQuery(5), control=Silent()).checkpoint()


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


@pytest.mark.parametrize("counts", [[FakeCounts()], []], ids=["pipeline", "writer"])
def test_stopping_waits_for_the_tasks_whose_counts_are_still_to_come(
    counts: list[FakeCounts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for those of the readers alone: a user's own writer has no others."""
    answers = iter([True, True, False])
    control = EndingControl(query := FakeQuery(1))

    def has_tasks_at_work(_query: object) -> bool:
        assert "close" not in control.did, "what arrives later is dropped"
        return next(answers)

    monkeypatch.setattr(running, "has_tasks_at_work", has_tasks_at_work)
    checkpoint = FakeCheckpoint()
    run(query, counts, checkpoint, control=control).stop()
    assert next(answers, None) is None
    assert query.did == ["stop"]
    assert not checkpoint.held


class UnstoppableQuery(FakeQuery):
    """A query whose JVM answers with an error, or not at all."""

    error: Exception = Py4JError("An error occurred while calling o42.stop")

    def stop(self) -> None:
        self.did.append("stop")
        raise self.error


class UnstoppableControl(FakeControl):
    """The control of such a query."""

    def stop(self) -> None:
        raise UnstoppableQuery.error


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
    unstoppable = run(UnstoppableQuery(1), checkpoint=checkpoint, control=UnstoppableControl())
    with pytest.raises(ZeroDivisionError) as raised, unstoppable:
        raise ZeroDivisionError
    (note,) = raised.value.__notes__
    assert "could not be stopped" in note
    assert checkpoint.held, "the query may still run"


def test_a_query_that_cannot_be_stopped_keeps_its_checkpoint_until_it_is(jvm_alive: None) -> None:
    query, checkpoint = UnstoppableQuery(1), FakeCheckpoint()
    unstoppable = run(query, checkpoint=checkpoint, control=UnstoppableControl())
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

    monkeypatch.setattr(alive._progress, "note", fail)
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
    run(FakeQuery(1), checkpoint=checkpoint, costs=Costs()).stop()
    assert saved[0]


@pytest.mark.parametrize("mode", list(Mode))
def test_the_summary_counts_what_is_not_saved(mode: Mode) -> None:
    control = FakeControl()
    control.unsaved = 3
    assert run(FakeQuery(1, 2), mode=mode, control=control).stop(0.01).uncommitted_rows == 3


@pytest.mark.parametrize(("read", "uncommitted"), [(7, 3), (4, 0)])
def test_without_control_the_records_that_tasks_have_read_are_counted(read: int, uncommitted: int) -> None:
    stopped = without_control(FakeQuery(1, 2), counts=[FakeCounts(not_json=read)])  # two rows in each batch
    assert not stopped.wait(0.05)
    assert stopped.stop().uncommitted_rows == uncommitted


def test_free_slots_are_divided_among_the_sources() -> None:
    query = FakeQuery(5)
    control = EndingControl(query)
    running = run(query, control=control)
    endpoints: Any = [FakeEndpoint({"payments": [3]}), FakeEndpoint({"refunds": [0]})]
    running.follow_partitions(endpoints, lambda: 5)
    assert running._partitions is not None
    control.new = ["payments-1"]
    running._partitions.poll()
    assert control.more_tasks == 2
    control.readers = [at("payments-0", 1)]
    assert [(each.topic, each.lag) for each in running.positions()] == [("payments", 2)]
    running.stop()


def test_micro_batches_and_uncontrolled_sources_have_no_positions() -> None:
    assert run(FakeQuery(5), mode=Mode.MICROBATCH).positions() == []
    assert without_control(FakeQuery(5)).positions() == []


def test_positions_of_a_dead_jvm_are_a_failure_of_the_query() -> None:
    class DeadControl(FakeControl):
        def positions(self) -> Any:
            raise Py4JNetworkError("gone")

    with pytest.raises(QueryFailed):
        run(FakeQuery(5), control=DeadControl()).positions()
