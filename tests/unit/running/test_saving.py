"""A checkpoint on request, without Spark."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.errors import CheckpointTimeout, QueryFailed
from tailrace.pipeline import Mode
from tailrace.running import saving
from tailrace.running.saving import SavedCheckpoint, Saving

from .fakes import FakeClock, FakeControl


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(saving, "time", fake)
    return fake


def saving_of(control: FakeControl, mode: Mode = Mode.REALTIME) -> Saving:
    given: Any = control
    return Saving("fraud", given, mode)


class Running:
    """Whether the query runs; a test ends it."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def require(self) -> None:
        if self.error is not None:
            raise self.error

    def fail(self) -> None:
        self.error = QueryFailed("query 'fraud' failed")


def test_in_real_time_the_batch_is_ended_and_its_commit_is_waited_for(clock: FakeClock) -> None:
    control = FakeControl()
    control.pause = None
    clock.at[2] = lambda: control.committed.add(7)
    clock.at[4] = lambda: setattr(control, "pause", 93.5)
    saved = saving_of(control).checkpoint(60, Running().require)
    assert saved == SavedCheckpoint(7, 93.5)
    assert control.did == ["end batch"]


def test_a_request_between_two_batches_waits_for_the_next_one(clock: FakeClock) -> None:
    control = FakeControl()
    control.batch, control.committed = None, {8}
    clock.at[3] = lambda: setattr(control, "batch", 8)
    assert saving_of(control).checkpoint(60, Running().require).number == 8


def test_a_pause_that_is_not_known_in_time_is_not_reported(clock: FakeClock) -> None:
    control = FakeControl()
    control.committed, control.pause = {7}, None
    assert saving_of(control).checkpoint(60, Running().require) == SavedCheckpoint(7, None)
    assert 10 <= clock.now < 10.1
    assert saving_of(control).checkpoint(3, Running().require) == SavedCheckpoint(7, None)
    assert clock.now < 13.2, "the timeout of the call counts if it is shorter"


def test_in_micro_batch_the_commit_of_the_running_batch_is_waited_for(clock: FakeClock) -> None:
    control = FakeControl()
    control.logged = (5, 4)
    clock.at[3] = lambda: control.committed.add(5)
    saved = saving_of(control, Mode.MICROBATCH).checkpoint(60, Running().require)
    assert saved == SavedCheckpoint(5, 0.0)
    assert control.did == [], "a micro-batch never ends early"


@pytest.mark.parametrize(("logged", "number"), [((5, 5), 5), ((None, None), None)])
def test_in_micro_batch_an_idle_query_is_saved_already(
    clock: FakeClock, logged: tuple[int | None, int | None], number: int | None
) -> None:
    control = FakeControl()
    control.logged = logged
    saved = saving_of(control, Mode.MICROBATCH).checkpoint(60, Running().require)
    assert (saved, clock.now) == (SavedCheckpoint(number, 0.0), 0)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_checkpoint_that_takes_too_long_is_an_error_and_the_next_may_succeed(clock: FakeClock, mode: Mode) -> None:
    control = FakeControl()
    control.logged = (7, 6)
    slow = saving_of(control, mode)
    with pytest.raises(CheckpointTimeout, match=r"'fraud' was not checkpointed within 2\.5 s") as late:
        slow.checkpoint(2.5, Running().require)
    assert "keeps running" in late.value.fix
    assert 2.5 <= clock.now < 2.6
    control.committed = {7}
    assert slow.checkpoint(2.5, Running().require).number == 7


def test_a_request_that_no_batch_takes_is_late_too(clock: FakeClock) -> None:
    control = FakeControl()
    control.batch = None
    with pytest.raises(CheckpointTimeout):
        saving_of(control).checkpoint(1, Running().require)


def test_a_query_that_is_being_stopped_takes_no_request(clock: FakeClock) -> None:
    control, query = FakeControl(), Running()
    query.fail()
    with pytest.raises(QueryFailed):
        saving_of(control).checkpoint(60, query.require)
    assert control.did == []


@pytest.mark.parametrize("mode", list(Mode))
def test_a_failure_or_a_stop_meanwhile_ends_the_wait(clock: FakeClock, mode: Mode) -> None:
    control, query = FakeControl(), Running()
    control.logged = (7, 6)
    clock.at[2] = query.fail
    with pytest.raises(QueryFailed, match="'fraud' failed"):
        saving_of(control, mode).checkpoint(60, query.require)
    assert clock.now < 0.1


class BlockedControl(FakeControl):
    """A control whose batch is not committed before the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.done = threading.Event()

    def is_committed(self, batch: int) -> bool:
        self.asked.set()
        assert self.done.wait(20)
        return super().is_committed(batch)


def test_a_second_call_joins_the_first(clock: FakeClock) -> None:
    control, query = BlockedControl(), Running()
    control.committed = {7}
    shared = saving_of(control)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shared.checkpoint, 60, query.require)
        assert control.asked.wait(20)
        with pytest.raises(CheckpointTimeout, match="within 0 s"):
            shared.checkpoint(0, query.require)
        second = threads.submit(shared.checkpoint, 60, query.require)
        control.done.set()
        assert first.result(20) == second.result(20) == SavedCheckpoint(7, 80.0)
    assert "end batch" in control.did


def test_a_call_that_joined_fails_with_the_first(clock: FakeClock) -> None:
    control, query = BlockedControl(), Running()
    shared = saving_of(control)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(shared.checkpoint, 60, query.require)
        assert control.asked.wait(20)
        joined = shared._current
        query.fail()
        control.done.set()
        assert joined is not None
        for call in (first, joined):
            with pytest.raises(QueryFailed, match="'fraud' failed"):
                call.result(20)
    assert shared._current is None


class InterruptedControl(BlockedControl):
    """A control whose first question of a kind is interrupted by Ctrl-C."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.committed = {7}
        self._at = at

    def _interrupt(self, question: str) -> None:
        if self._at == question:
            self._at = ""
            raise KeyboardInterrupt

    def is_committed(self, batch: int) -> bool:
        committed = super().is_committed(batch)
        self._interrupt("committed")
        return committed

    def pause_ms(self, batch: int) -> float | None:
        self._interrupt("pause")
        return super().pause_ms(batch)


@pytest.mark.parametrize(
    ("at", "got", "requests"), [("pause", SavedCheckpoint(7, None), 1), ("committed", SavedCheckpoint(7, 80.0), 2)]
)
def test_ctrl_c_in_one_call_leaves_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, at: str, got: SavedCheckpoint, requests: int
) -> None:
    """What is saved is returned; otherwise another call takes the place of the interrupted one."""
    has_joined = threading.Event()

    class Noted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            has_joined.set()
            return super().result(timeout)

    monkeypatch.setattr(saving, "Future", Noted)
    control, query = InterruptedControl(at), Running()
    shared = saving_of(control)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(shared.checkpoint, 60, query.require)
        assert control.asked.wait(20)
        joining = threads.submit(shared.checkpoint, 60, query.require)
        assert has_joined.wait(20)
        control.done.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(20)
        assert joining.result(20) == got
    assert control.did == ["end batch"] * requests
