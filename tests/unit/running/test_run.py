"""A run until its end or a signal, without Spark."""

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest

from tailrace.prepare.options import RunOptions
from tailrace.running import run as running_run
from tailrace.running.run import run_query

SIGNALS = [signal.SIGINT, signal.SIGTERM]
PIPELINE: Any = None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Let both signals raise, as they do while a query starts."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class FakeRunning:
    """A query that runs until it is told to stop."""

    def __init__(self) -> None:
        self.was_asked = self.is_stopped = self.saves_nothing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_stopped = True

    def wait(self, *, stop: threading.Event) -> bool:
        self.was_asked = stop.is_set()
        return False

    def skip_saving(self) -> None:
        assert not self.is_stopped
        self.saves_nothing = True

    def summary(self) -> str:
        return "the summary"


def run_with(monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]) -> Any:
    monkeypatch.setattr(running_run, "start_query", start)
    return run_query(PIPELINE, RunOptions())


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_right_after_the_start_stops_the_query(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    running = FakeRunning()

    def start(*_: object, on_confirmed: Callable[[], object]) -> FakeRunning:
        on_confirmed()
        signal.raise_signal(number)  # on the way back to the caller, which has no handle to the query yet
        return running

    assert run_with(monkeypatch, start) == ("the summary", False)
    assert running.was_asked
    assert running.is_stopped


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("signals", [1, 2])
def test_a_second_signal_before_the_stop_begins_leaves_it_no_time_to_save(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, signals: int
) -> None:
    class Signalled(FakeRunning):
        def wait(self, *, stop: threading.Event) -> bool:
            for _ in range(signals):
                signal.raise_signal(number)
            return super().wait(stop=stop)

    running = Signalled()

    def start(*_: object, on_confirmed: Callable[[], object]) -> FakeRunning:
        on_confirmed()
        return running

    if signals == 1:
        assert run_with(monkeypatch, start) == ("the summary", False)
    else:
        with pytest.raises(KeyboardInterrupt):
            run_with(monkeypatch, start)
    assert running.saves_nothing is (signals == 2)
    assert running.is_stopped


def test_an_interrupt_that_is_no_second_signal_saves_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(FakeRunning):
        def wait(self, *, stop: threading.Event) -> bool:
            raise KeyboardInterrupt

    running = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        run_with(monkeypatch, lambda *_, **__: running)
    assert not running.saves_nothing
    assert running.is_stopped


def test_a_signal_before_the_query_runs_interrupts_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object, on_confirmed: Callable[[], object]) -> FakeRunning:
        signal.raise_signal(signal.SIGINT)
        return FakeRunning()

    with pytest.raises(KeyboardInterrupt):
        run_with(monkeypatch, start)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_handlers_of_before_return(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    before = signal.getsignal(number)

    def start(*_: object, on_confirmed: Callable[[], object]) -> FakeRunning:
        on_confirmed()
        assert signal.getsignal(number) is not before
        return FakeRunning()

    run_with(monkeypatch, start)
    assert signal.getsignal(number) is before
