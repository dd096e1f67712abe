"""Functions that take an iterator of columns: `@pandas_udf` and `arrow_udf` over one."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.columns import ColumnFunction
from tailrace.worker.iterated import Iterated
from tailrace.worker.messages import Answers, reader
from tailrace.worker.plain import joined


def stream(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function over an iterator, batch by batch."""
    called = Streamed(ColumnFunction(told), told["alone"], must_fail=told["must_fail"])
    called.begin()
    read, answers = reader(told), Answers()

    def run(message: Any) -> Any:
        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        made = called.over(read(message), failures)
        spent = time.perf_counter_ns() - began
        return answers.of(joined(made) if made else None, failures, [spent])

    return run


class Streamed(Iterated):
    """A function that makes one result of each row, in order: those that it has not answered are held."""

    def __init__(self, function: ColumnFunction, alone: int, *, must_fail: bool) -> None:
        super().__init__(function.name, function.function, function.over, alone, must_fail=must_fail)
        self._function = function
        self._unanswered: deque[Any] = deque()

    def _hold(self, batch: Any) -> None:
        self._unanswered.append(batch)

    def _note(self, batch: Any, made: list[Any]) -> None:  # noqa: ARG002
        count = sum(len(each) for each in made)
        while count > 0 and self._unanswered:
            first = self._unanswered.popleft()
            if first.num_rows > count:
                self._unanswered.appendleft(first.slice(count))
            count -= first.num_rows

    def _knows_all(self) -> bool:
        return bool(self._unanswered)

    def _one_by_one(self, failures: dict[int, str]) -> list[Any]:
        made = self._function.one_by_one(self._unanswered, failures)
        self._unanswered.clear()
        return made
