"""A function over an iterator, in a worker that is given batch by batch."""

from abc import ABC, abstractmethod
from typing import Any

from tailrace.worker.failures import FunctionFailed
from tailrace.worker.pulling import Call, Pulling, pulling


class Iterated(ABC):
    """Such a function, and the batches that it may still make something of.

    After an exception each row of those is tried in a call of its own, and the function is called anew for what comes.
    The first `alone` batches are tried so, too: a worker has ended over one of them. An exception that no row has to do
    with ends the query where `must_fail` says so.
    """

    def __init__(self, name: str, function: Any, call: Call, alone: int, *, must_fail: bool) -> None:
        self.name = name
        self.function = function
        self._call = call
        self._alone = alone
        self._must_fail = must_fail
        self._pulling: Pulling | None = None

    def begin(self) -> None:
        """What the function does before its first batch, like loading a model, it does now."""
        try:
            self._pulling = pulling(self._call)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises
            raise FunctionFailed.by(self.name, self.function, raised) from None

    def over(self, batch: Any, failures: dict[int, str]) -> list[Any]:
        """What the function makes before it asks for the next batch, or to its end where there is none.

        Of rows that had to be tried alone, `failures` tells what went wrong with which.
        """
        if batch is not None:
            self._hold(batch)
            if self._alone > 0:
                self._alone -= 1
                return self._one_by_one(failures)
        failure: Exception | None = None
        made: list[Any] = []
        try:
            made = self._pulled(batch)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
            failure = raised
        if failure is not None:  # not above, where it would be the context of what single rows raise
            return self._again(failure, failures)
        self._note(batch, made)
        return made

    def _pulled(self, batch: Any) -> list[Any]:
        if self._pulling is None and batch is not None:
            self._pulling = pulling(self._call)
        return self._pulling.take(batch) if self._pulling is not None else []

    def _again(self, raised: Exception, failures: dict[int, str]) -> list[Any]:
        begun = self._pulling is not None and self._pulling.begun
        self._pulling = None
        if not begun or not self._knows_all():
            raise FunctionFailed.by(self.name, self.function, raised) from None
        made = self._one_by_one(failures)
        if not failures and self._must_fail:
            raise FunctionFailed.by(self.name, self.function, raised) from None
        return made

    @property
    def _wants_no_more(self) -> bool:
        return self._pulling is None or self._pulling.ended

    @abstractmethod
    def _hold(self, batch: Any) -> None:
        """The function is about to get this batch."""

    @abstractmethod
    def _note(self, batch: Any, made: list[Any]) -> None:
        """The function has made this before it asked for what follows that batch."""

    @abstractmethod
    def _knows_all(self) -> bool:
        """Whether there are rows to try again, and all of them are known."""

    @abstractmethod
    def _one_by_one(self, failures: dict[int, str]) -> list[Any]:
        """What the function makes of every row that it holds, each in a call of its own."""
