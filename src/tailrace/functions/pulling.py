"""A function that pulls batches from an iterator, for a worker that gives them one by one."""

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Any


class Pulling:
    """A call of such a function, in a thread of its own: only so can it wait in the middle of its code.

    Of the two threads one waits for the other at any time, so that nothing needs a lock.
    """

    def __init__(self, call: Callable[[Iterator[Any]], Iterable[Any]]) -> None:
        self._given: SimpleQueue[Any] = SimpleQueue()
        self._turn: SimpleQueue[tuple[bool, BaseException | None]] = SimpleQueue()
        self._made: list[Any] = []
        self.begun = False
        """Whether the function has taken a batch: what it raises before has to do with none."""
        self.ended = False
        """Whether the function has returned: it wants no more batches."""
        threading.Thread(target=self._run, args=(call,), name="function over an iterator", daemon=True).start()

    def take(self, batch: Any) -> list[Any]:
        """Give it the next batch: what it makes before it asks for another. Raises what it raises."""
        return self._answer(batch)

    def finish(self) -> list[Any]:
        """Tell it that there are no more: what it still makes."""
        return self._answer(None)

    def _answer(self, batch: Any) -> list[Any]:
        if self.ended:
            return []
        self._given.put(batch)
        self.ended, raised = self._turn.get()
        made, self._made = self._made, []
        if raised is not None:
            raise raised
        return made

    def _run(self, call: Callable[[Iterator[Any]], Iterable[Any]]) -> None:
        raised: BaseException | None = None
        try:
            for each in call(self._batches()):
                self._made.append(each)
        except BaseException as any_kind:  # noqa: BLE001 - it is raised where the batch was given
            raised = any_kind
        self._turn.put((True, raised))

    def _batches(self) -> Iterator[Any]:
        while (batch := self._given.get()) is not None:
            self.begun = True
            yield batch
            self._turn.put((False, None))  # it asks for the next one
