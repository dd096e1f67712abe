"""How a query is ended, without Spark: what is waited for, how long, and what the next start repeats."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.pipeline import Mode
from tailrace.running import ending
from tailrace.running.ending import Ending, RepeatReason

from .fakes import FakeClock, FakeControl, FakeQuery

MODES = list(Mode)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(ending, "time", fake)
    return fake


def ending_of(
    query: FakeQuery, control: FakeControl | None, mode: Mode = Mode.REALTIME, timeout_s: float = 10.0
) -> Ending:
    given: Any = (query, control)
    return Ending(given[0], mode, given[1], timeout_s)


def end_at_once(control: FakeControl) -> Callable[[], None]:
    def end() -> None:
        control.ended = True

    return end


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_that_ends_in_time_is_saved_and_nothing_is_repeated(clock: FakeClock, mode: Mode) -> None:
    query, control = FakeQuery(), FakeControl()
    clock.at[3] = end_at_once(control)
    stopped = ending_of(query, control, mode)
    stopped.end(None)
    assert (stopped.is_requested, stopped.repeats) == (True, "")
    assert control.did == ["stop"]
    assert query.did == [], "the query ended itself: a stop of Spark's would cancel the batch"


def test_a_query_that_spark_calls_inactive_before_its_last_commit_is_waited_for(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    query.isActive = False
    clock.at[3] = end_at_once(control)
    stopped = ending_of(query, control)
    stopped.end(None)
    assert control.ended
    assert stopped.repeats == ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("given", "waited"), [(None, 10.0), (2.5, 2.5)])
def test_after_the_timeout_the_query_still_runs_and_repeats_its_batch(
    clock: FakeClock, mode: Mode, given: float | None, waited: float
) -> None:
    query, control = FakeQuery(), FakeControl()
    late = ending_of(query, control, mode)
    late.end(given)
    assert late.repeats == f"its batch did not end within {waited:g} s"
    assert waited <= clock.now < waited + 0.1
    assert query.did == []


@pytest.mark.parametrize("mode", MODES)
def test_a_timeout_of_zero_saves_nothing(clock: FakeClock, mode: Mode) -> None:
    query, control = FakeQuery(), FakeControl()
    at_once = ending_of(query, control, mode, timeout_s=0)
    at_once.end(None)
    assert "timeout of 0" in at_once.repeats
    asked = ["stop"] if mode is Mode.MICROBATCH else []  # an idle query has nothing to save
    assert (clock.now, control.did, query.did) == (0, asked, [])


def test_a_micro_batch_query_that_waits_for_its_trigger_is_stopped_at_once(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.idle = True
    idle = ending_of(query, control, Mode.MICROBATCH)
    idle.end(None)
    assert control.did == ["stop"], "before it is asked whether it waits"
    assert (clock.now, query.did, idle.repeats) == (0, ["stop"], "")


def test_a_real_time_query_is_never_stopped_as_idle(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.idle = True
    clock.at[2] = end_at_once(control)
    ending_of(query, control).end(None)
    assert query.did == []


def test_records_that_a_retry_has_not_read_are_repeated(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.short_retries = True
    clock.at[1] = end_at_once(control)
    stopped = ending_of(query, control)
    stopped.end(None)
    assert stopped.repeats == RepeatReason.TASK_FAILED


def test_a_run_that_has_ended_by_itself_repeats_what_a_retry_has_not_read(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.ended = control.short_retries = True
    done = ending_of(query, control)
    done.end(None)
    assert done.repeats == RepeatReason.TASK_FAILED


def test_a_batch_that_could_not_be_saved_is_repeated_as_a_whole_whatever_a_retry_has_read(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.saved, control.short_retries = False, True
    clock.at[1] = end_at_once(control)
    stopped = ending_of(query, control)
    stopped.end(None)
    assert stopped.repeats == "its last batch could not be saved"


@pytest.mark.parametrize(
    ("mode", "batch_runs", "reason"),
    [
        (Mode.REALTIME, False, "Spark's own Kafka source"),
        (Mode.MICROBATCH, True, "its batch was not finished"),
        (Mode.MICROBATCH, False, ""),
    ],
)
def test_without_control_a_stop_repeats_the_batch_that_runs(
    clock: FakeClock, mode: Mode, batch_runs: bool, reason: str
) -> None:
    query = FakeQuery()
    query.status["isTriggerActive"] = batch_runs
    stock = ending_of(query, None, mode)
    assert not stock.has_ended()
    stock.end(None)
    assert stock.repeats.startswith(reason)
    assert bool(stock.repeats) == bool(reason)
    assert (clock.now, query.did) == (0, [])
    query.isActive = False
    assert stock.has_ended()


def test_a_query_that_has_ended_by_itself_is_not_stopped(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.ended = True
    done = ending_of(query, control, timeout_s=0)
    done.end(None)
    assert (done.repeats, control.did) == ("", [])


def test_a_query_that_spark_stopped_in_a_batch_repeats_it(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.ended, control.saved = True, False
    done = ending_of(query, control)
    done.end(None)
    assert done.repeats == "Spark stopped it, not Tailrace"


def test_a_last_batch_that_could_not_be_saved_is_repeated(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    control.saved = False
    clock.at[1] = end_at_once(control)
    stopped = ending_of(query, control)
    stopped.end(None)
    assert stopped.repeats == "its last batch could not be saved"


@pytest.mark.parametrize(
    ("ended", "saved", "repeats"),
    [
        (True, True, ""),
        (True, False, "its batch did not end within 1 s"),
        (False, True, "its batch did not end within 1 s"),
    ],
)
def test_a_query_that_spark_stops_between_two_batches_repeats_nothing(
    clock: FakeClock, ended: bool, saved: bool, repeats: str
) -> None:
    """For example while it asks a silent broker for the ends of its topics."""
    query, control = FakeQuery(), FakeControl()
    late = ending_of(query, control, Mode.MICROBATCH)
    late.end(1)
    control.ended, control.saved = ended, saved
    late.settle()
    assert late.repeats == repeats


def test_the_first_stop_counts(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    twice = ending_of(query, control)
    twice.end(1)
    waited = clock.now
    twice.end(100)
    assert (clock.now, control.did) == (waited, ["stop"])
    assert twice.repeats == "its batch did not end within 1 s"


def test_a_second_stop_waits_for_the_first(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    shared = ending_of(query, control)
    seconds: list[threading.Thread] = []

    def stop_again() -> None:
        seconds.append(threading.Thread(target=shared.end, args=[None]))
        seconds[0].start()

    def still_waits() -> None:
        assert seconds[0].is_alive(), "a stop of Spark's would now cancel the batch"
        control.ended = True

    clock.at = {1: stop_again, 2: still_waits}
    shared.end(None)
    seconds[0].join(20)
    assert not seconds[0].is_alive()
    assert (control.did, shared.repeats) == (["stop"], "")


def test_an_interrupted_stop_does_not_say_that_nothing_is_repeated(clock: FakeClock) -> None:
    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    query, control = FakeQuery(), FakeControl()
    clock.at[2] = press_ctrl_c
    interrupted = ending_of(query, control)
    with pytest.raises(KeyboardInterrupt):
        interrupted.end(None)
    assert interrupted.repeats == RepeatReason.INTERRUPTED
    interrupted.end(None)
    assert control.did == ["stop"]


def test_a_stop_that_the_user_does_not_want_to_wait_for_asks_for_nothing(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    hurried = ending_of(query, control)
    hurried.interrupt()
    hurried.end(None)
    assert (clock.now, control.did, hurried.repeats) == (0, [], RepeatReason.INTERRUPTED)
    control.ended = True  # between two batches
    hurried.settle()
    assert hurried.repeats == ""


def test_a_stop_that_has_ended_cannot_be_interrupted(clock: FakeClock) -> None:
    query, control = FakeQuery(), FakeControl()
    clock.at[1] = end_at_once(control)
    done = ending_of(query, control)
    done.end(None)
    done.interrupt()
    assert done.repeats == ""
