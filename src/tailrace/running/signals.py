"""Handle Ctrl-C and SIGTERM while a query starts and runs."""

import contextlib
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_Handler = Callable[[int, FrameType | None], Any]
_PYSPARKS = "pyspark.core.context"


class Interruptible(Protocol):
    """A query that Ctrl-C may interrupt."""

    is_closed: bool


_queries: weakref.WeakSet[Interruptible] = weakref.WeakSet()
"""The queries that Ctrl-C must not fail."""


def keep_jobs_on_interrupt(query: Interruptible) -> None:
    """Let Ctrl-C only raise KeyboardInterrupt as long as a query runs, so that the program can stop it.

    PySpark's own handler cancels all jobs first, which fails the query. A handler of the user's stays.
    """
    _queries.add(query)
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or getattr(before, "__module__", "") != _PYSPARKS:
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if all(each.is_closed for each in _queries):
            before(number, frame)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, instead of ending the program in the middle of something."""
    stop = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            # The second signal: the user does not want to wait.
            raise KeyboardInterrupt
        stop.set()

    with _handled_by(request_stop):
        yield stop


@contextlib.contextmanager
def defer_signals() -> Iterator[None]:
    """Deliver Ctrl-C and SIGTERM at the end of the block; the second one interrupts it."""
    pending: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        if pending:
            raise KeyboardInterrupt
        pending.append(number)

    with _handled_by(note):
        yield
    for number in pending:
        signal.raise_signal(number)


@contextlib.contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    """Replace the signal handlers; do nothing outside the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            # None: the handler was not installed from Python, which cannot restore it.
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)
