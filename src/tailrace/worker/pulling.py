"""A function that pulls batches from an iterator, for a worker that gives them one by one."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any

Call = Callable[[Iterator[Any]], Iterable[Any]]


class Pulling(ABC):
    """A call of such a function: it waits for each batch in the middle of its code while the worker goes on."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._made: list[Any] = []
        self.begun = False
        """Whether it has taken a batch: what it raises before has to do with none."""
        self.ended = False
        """Whether it has returned: it wants no more batches."""

    def take(self, batch: Any) -> list[Any]:
        """Give it the next batch, or None after the last: what it makes before it asks for another.

        Raises what it raises.
        """
        if not self.ended:
            self._go_on(batch)
        made, self._made = self._made, []
        return made

    @abstractmethod
    def _go_on(self, *batch: Any) -> None:
        """Let the function go on with a batch until it asks for the next one, or ends."""

    @abstractmethod
    def _wait(self) -> Any:
        """The next batch, for the function."""

    def _run(self) -> None:
        for each in self._call(self._batches()):
            self._made.append(each)

    def _batches(self) -> Iterator[Any]:
        while (batch := self._wait()) is not None:
            self.begun = True
            yield batch


def pulling(call: Call) -> Pulling:
    """A call, up to where the function asks for its first batch."""
    try:
        import greenlet  # noqa: F401
    except ImportError:  # a worker on another machine need not have it
        return InThread(call)
    return InGreenlet(call)


class InGreenlet(Pulling):
    """In a stack of its own: to change from one to the other takes no time."""

    def __init__(self, call: Call) -> None:
        import contextvars

        import greenlet

        super().__init__(call)
        self._worker = greenlet.getcurrent()
        self._function = greenlet.greenlet(self._run)
        self._function.gr_context = contextvars.copy_context()
        self._go_on()

    def _go_on(self, *batch: Any) -> None:
        self._function.switch(*batch)
        self.ended = self._function.dead

    def _wait(self) -> Any:
        return self._worker.switch()


class InThread(Pulling):
    """In a thread of its own. One of the two waits for the other at any time, so that nothing needs a lock."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._given: SimpleQueue[Any] = SimpleQueue()
        self._turn: SimpleQueue[tuple[bool, BaseException | None]] = SimpleQueue()
        threading.Thread(target=self._run_to_end, name="function over an iterator", daemon=True).start()
        self._take_turn()

    def _go_on(self, *batch: Any) -> None:
        self._given.put(*batch)
        self._take_turn()

    def _take_turn(self) -> None:
        self.ended, raised = self._turn.get()
        if raised is not None:
            raise raised

    def _wait(self) -> Any:
        self._turn.put((False, None))
        return self._given.get()

    def _run_to_end(self) -> None:
        raised: BaseException | None = None
        try:
            self._run()
        except BaseException as any_kind:  # noqa: BLE001 - it is raised where the batch was given
            raised = any_kind
        self._turn.put((True, raised))
