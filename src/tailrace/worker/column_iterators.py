"""Functions over an iterator of columns: `@pandas_udf` and `arrow_udf` with iterators."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.columns import ColumnFunction
from tailrace.worker.iterator_function import IteratorFunction
from tailrace.worker.messages import ReplyEncoder, batch_reader
from tailrace.worker.plain import concat_batches


def column_iterator(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs one batch per message through the user's iterator function."""
    function = ColumnIteratorFunction(ColumnFunction(spec), spec["alone"], must_fail=spec["must_fail"])
    function.begin()
    read, replies = batch_reader(spec), ReplyEncoder()

    def run(message: Any) -> Any:
        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        output = function.process(read(message), failures)
        elapsed = time.perf_counter_ns() - began
        return replies.encode(concat_batches(output) if output else None, failures, [elapsed])

    return run


class ColumnIteratorFunction(IteratorFunction):
    """A function that returns one result per row, in order. Rows without a result are pending."""

    def __init__(self, function: ColumnFunction, retries: int, *, must_fail: bool) -> None:
        super().__init__(function.name, function.function, function.evaluate_all, retries, must_fail=must_fail)
        self._function = function
        self._pending: deque[Any] = deque()

    def _hold(self, batch: Any) -> None:
        self._pending.append(batch)

    def _release(self, batch: Any, output: list[Any]) -> None:  # noqa: ARG002
        count = sum(len(each) for each in output)
        while count > 0 and self._pending:
            first = self._pending.popleft()
            if first.num_rows > count:
                self._pending.appendleft(first.slice(count))
            count -= first.num_rows

    def _can_retry(self) -> bool:
        return bool(self._pending)

    def _retry_rows(self, failures: dict[int, str]) -> list[Any]:
        output = self._function.evaluate_rows(self._pending, failures)
        self._pending.clear()
        return output
