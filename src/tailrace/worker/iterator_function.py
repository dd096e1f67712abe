"""A function over an iterator, in a worker that gets one batch per message."""

from abc import ABC, abstractmethod
from typing import Any

from tailrace.worker.failures import FunctionFailed
from tailrace.worker.iterator_call import Call, IteratorCall, start_call


class IteratorFunction(ABC):
    """A function over an iterator, and the pending batches that it may still produce output for.

    After an exception, each pending row is retried in a call of its own, and a new call takes the batches that follow.
    The first `retries` batches are processed in the same way: a worker died with one of them. If `must_fail` is set, an
    exception that no single row reproduces ends the query.
    """

    def __init__(self, name: str, function: Any, call: Call, retries: int, *, must_fail: bool) -> None:
        self.name = name
        self.function = function
        self._call = call
        self._retries = retries
        self._must_fail = must_fail
        self._running: IteratorCall | None = None

    def begin(self) -> None:
        """Run the function up to its first batch, so that it loads its model now."""
        try:
            self._running = start_call(self._call)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - the user's function may raise anything
            raise FunctionFailed.from_exception(self.name, self.function, raised) from None

    def process(self, batch: Any, failures: dict[int, str]) -> list[Any]:
        """Return the output until the function asks for its next batch; with None as the batch, until it ends.

        If rows are retried one by one, their failures are added to `failures` by index.
        """
        if batch is not None:
            self._hold(batch)
            if self._retries > 0:
                self._retries -= 1
                return self._retry_rows(failures)
        failure: Exception | None = None
        output: list[Any] = []
        try:
            output = self._send(batch)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is the failure of its row
            failure = raised
        if failure is not None:  # outside of the except block, so that single rows do not chain to it
            return self._recover(failure, failures)
        self._release(batch, output)
        return output

    def _send(self, batch: Any) -> list[Any]:
        if self._running is None and batch is not None:
            self._running = start_call(self._call)
        return self._running.send(batch) if self._running is not None else []

    def _recover(self, raised: Exception, failures: dict[int, str]) -> list[Any]:
        has_input = self._running is not None and self._running.has_input
        self._running = None
        if not has_input or not self._can_retry():
            raise FunctionFailed.from_exception(self.name, self.function, raised) from None
        output = self._retry_rows(failures)
        if not failures and self._must_fail:
            raise FunctionFailed.from_exception(self.name, self.function, raised) from None
        return output

    @property
    def _has_returned(self) -> bool:
        return self._running is None or self._running.ended

    @abstractmethod
    def _hold(self, batch: Any) -> None:
        """Keep a batch that the function is about to get."""

    @abstractmethod
    def _release(self, batch: Any, output: list[Any]) -> None:
        """Release the batches that this output completes; the function has asked for the batch after `batch`."""

    @abstractmethod
    def _can_retry(self) -> bool:
        """Return whether there are pending rows, and none of them was dropped."""

    @abstractmethod
    def _retry_rows(self, failures: dict[int, str]) -> list[Any]:
        """Return the output for every pending row, each in a call of its own."""
