import signal
import threading
from collections.abc import Iterator

import pytest

from tailrace.running.signals import defer_signals, stop_on_signals


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt: a shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_one_interrupts(number: signal.Signals) -> None:
    with stop_on_signals() as asked:
        assert not asked.is_set()
        signal.raise_signal(number)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


def deferring(signals: int, done: list[str]) -> None:
    with defer_signals():
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        done.append("the rest of the block")


def test_a_deferred_signal_is_delivered_to_the_handler_of_before() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        deferring(1, done)
    assert done == ["the rest of the block"]


def test_the_second_signal_interrupts_a_block_that_defers_them() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        deferring(2, done)
    assert done == []
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_another_thread_than_the_main_one_has_no_signals_to_handle() -> None:
    entered = []

    def enter() -> None:
        with stop_on_signals() as asked, defer_signals():
            entered.append(asked.is_set())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [False]
