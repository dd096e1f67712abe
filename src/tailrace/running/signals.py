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


_TRIES = 100
_TRY_EVERY_S = 0.02


class Interruptible(Protocol):
    """A query that a signal may interrupt."""

    is_over: bool


_queries: weakref.WeakSet[Interruptible] = weakref.WeakSet()
"""The queries that no signal must fail."""


def raise_on_signals(query: Interruptible) -> None:
    """Let Ctrl-C and SIGTERM only raise an exception as long as a query runs, so that the program can stop it.

    PySpark's own handler of Ctrl-C cancels all jobs first, which fails the query; SIGTERM would end Python at once. A
    handler of the user's stays.
    """
    _queries.add(query)
    if threading.current_thread() is not threading.main_thread():
        return
    sparks = signal.getsignal(signal.SIGINT)
    if callable(sparks) and getattr(sparks, "__module__", "") == _PYSPARKS:
        _handle_while_queries_run(signal.SIGINT, _Interrupt(KeyboardInterrupt), sparks)
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _handle_while_queries_run(signal.SIGTERM, _Interrupt(lambda: SystemExit(128 + signal.SIGTERM)), _terminate)


def _handle_while_queries_run(number: signal.Signals, interrupt: "_Interrupt", before: _Handler) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        if all(each.is_over for each in _queries):
            before(number, frame)
        interrupt(number, frame)

    signal.signal(number, handle)


def _terminate(number: int, _frame: FrameType | None) -> None:
    """Do what SIGTERM does without a handler."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


class _Interrupt:
    """Raises an exception, but not in the middle of a call to Spark.

    The reply would stay unread, and the next call would take it for its own. A call that lasts, such as
    ``awaitTermination``, is interrupted after two seconds.
    """

    def __init__(self, exception: Callable[[], BaseException]) -> None:
        self._exception = exception
        self._tries = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _is_calling_spark(frame) and self._tries < _TRIES:
            self._tries += 1
            main = threading.main_thread().ident
            threading.Timer(_TRY_EVERY_S, signal.pthread_kill, (main, number)).start()
            return
        self._tries = 0
        raise self._exception()


def _is_calling_spark(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("py4j."):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, instead of ending the program in the middle of something.

    Args:
        stop: The event; a new one by default.
    """
    stop, interrupt = stop or threading.Event(), _Interrupt(KeyboardInterrupt)

    def request_stop(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            interrupt(number, frame)  # the second signal: the user does not want to wait
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
