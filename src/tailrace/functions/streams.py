"""Functions that take an iterator of columns: `@pandas_udf` and `arrow_udf` over one."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.functions.columns import ColumnFunction
from tailrace.functions.failures import FunctionFailed
from tailrace.functions.messages import Answers, reader
from tailrace.functions.pulling import Pulling, pulling

if TYPE_CHECKING:
    import pyarrow as pa


def stream(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function over an iterator, batch by batch."""
    (each,) = told["functions"]
    called = Streamed(ColumnFunction(told, each), told["alone"])
    called.begin()
    read, answers = reader(told), Answers()

    def run(message: bytes) -> Any:
        import pyarrow as pa

        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        made = called.over(read(message), failures)
        spent = time.perf_counter_ns() - began
        results = pa.RecordBatch.from_arrays([pa.concat_arrays(made)], ["_0"]) if made else None
        return answers.of(results, failures, [spent])

    return run


class Streamed:
    """A function over an iterator, and the rows that it has not answered.

    After an exception each of those is tried in a call of its own, and the function is called anew for what comes. The
    first `alone` batches are tried so, too: a worker has ended over one of them.
    """

    def __init__(self, function: ColumnFunction, alone: int) -> None:
        self._function = function
        self._alone = alone
        self._pulling: Pulling | None = None
        self._unanswered: deque[pa.RecordBatch] = deque()

    def over(self, batch: "pa.RecordBatch | None", failures: dict[int, str]) -> list["pa.Array"]:
        """The results for the first of the unanswered rows; where there are no more batches, for all of them."""
        if batch is not None:
            self._unanswered.append(batch)
        if batch is not None and self._alone > 0:
            self._alone -= 1
            return self._one_by_one(failures)
        try:
            made = self._pulled(batch)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
            begun = self._pulling is not None and self._pulling.begun
            self._pulling = None
            if not begun or not self._unanswered:
                raise FunctionFailed.by(self._function.name, raised) from None
            return self._one_by_one(failures)
        self._strike(sum(len(each) for each in made))
        return made

    def begin(self) -> None:
        """What the function does before its first batch, like loading a model, it does now."""
        try:
            self._pulling = pulling(self._function.over)
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001 - whatever the user's function raises
            raise FunctionFailed.by(self._function.name, raised) from None

    def _pulled(self, batch: "pa.RecordBatch | None") -> list["pa.Array"]:
        if self._pulling is None and batch is not None:
            self._pulling = pulling(self._function.over)
        return self._pulling.take(batch) if self._pulling is not None else []

    def _one_by_one(self, failures: dict[int, str]) -> list["pa.Array"]:
        made = self._function.one_by_one(self._unanswered, failures)
        self._unanswered.clear()
        return made

    def _strike(self, count: int) -> None:
        """The first rows are answered."""
        while count > 0 and self._unanswered:
            first = self._unanswered.popleft()
            if first.num_rows > count:
                self._unanswered.appendleft(first.slice(count))
            count -= first.num_rows
