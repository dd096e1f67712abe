"""A call of a function over an iterator, in a worker that passes batches in one by one."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

Call = Callable[[Iterator[Any]], Iterable[Any]]


class IteratorCall(ABC):
    """A running call. It is suspended while it waits for its next batch, so that the worker can continue."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._output: list[Any] = []
        self.has_input = False
        """Whether it has got a batch; an exception before that is not about a row."""
        self.ended = False
        """Whether the function has returned."""

    def send(self, batch: Any) -> list[Any]:
        """Pass in the next batch, or None after the last; return what the function yields until it asks for another.

        An exception of the function is raised here.
        """
        if not self.ended:
            self._resume(batch)
        output, self._output = self._output, []
        return output

    @abstractmethod
    def _resume(self, *batch: Any) -> None:
        """Run the function with a batch until it asks for the next one, or ends."""

    @abstractmethod
    def _wait(self) -> Any:
        """Suspend the function until there is a batch, and return it."""

    def _run(self) -> None:
        for each in self._call(self._batches()):
            self._output.append(each)

    def _batches(self) -> Iterator[Any]:
        while (batch := self._wait()) is not None:
            self.has_input = True
            yield batch


def start_call(call: Call) -> IteratorCall:
    """Start a call and run it until the function asks for its first batch."""
    try:
        import greenlet  # noqa: F401
    except ImportError:  # optional on the machines of a cluster
        return ThreadCall(call)
    return GreenletCall(call)


class GreenletCall(IteratorCall):
    """A call in a greenlet: switching between the function and the worker is nearly free."""

    def __init__(self, call: Call) -> None:
        import contextvars

        import greenlet

        super().__init__(call)
        self._worker = greenlet.getcurrent()
        self._function = greenlet.greenlet(self._run)
        self._function.gr_context = contextvars.copy_context()
        self._resume()

    def _resume(self, *batch: Any) -> None:
        self._function.switch(*batch)
        self.ended = self._function.dead

    def _wait(self) -> Any:
        return self._worker.switch()


class ThreadCall(IteratorCall):
    """A call in a thread. The function and the worker take turns, so nothing needs a lock."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._input: SimpleQueue[Any] = SimpleQueue()
        self._suspended: SimpleQueue[tuple[bool, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._run_to_end, name="function over an iterator", daemon=True).start()
        self._await_suspension()

    def _resume(self, *batch: Any) -> None:
        self._input.put(*batch)
        self._await_suspension()

    def _await_suspension(self) -> None:
        self.ended, raised = self._suspended.get()
        if raised is not None:
            raise raised

    def _wait(self) -> Any:
        self._suspended.put((False, None))
        return self._input.get()

    def _run_to_end(self) -> None:
        raised: BaseException | None = None
        try:
            self._run()
        except BaseException as any_kind:  # noqa: BLE001 - raised again in the worker's thread
            raised = any_kind
        self._suspended.put((True, raised))
