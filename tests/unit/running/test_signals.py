import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tailrace.running.signals import defer_signals, raise_on_signals, stop_on_signals


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt: a shell starts what runs in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Query:
    is_over = False


@pytest.fixture
def no_handler() -> Iterator[None]:
    """SIGTERM as a program finds it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_unwinds_a_program_while_a_query_runs(no_handler: None) -> None:
    query = Query()
    raise_on_signals(query)
    for _ in range(2):  # the second one interrupts the stop
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143
    query.is_over = True


def test_sigterm_ends_a_program_whose_query_is_over() -> None:
    program = (
        "import signal; from tailrace.running.signals import raise_on_signals\n"
        "class Query: is_over = True\n"
        "query = Query(); raise_on_signals(query); signal.raise_signal(signal.SIGTERM)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGTERM


def test_a_handler_of_the_programs_own_stays(no_handler: None) -> None:
    received = []
    signal.signal(signal.SIGTERM, lambda *_: received.append("SIGTERM"))
    query = Query()
    raise_on_signals(query)
    signal.raise_signal(signal.SIGTERM)
    query.is_over = True
    assert received == ["SIGTERM"]


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
