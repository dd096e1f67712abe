"""Functions on whole rows: `mapInPandas` and `mapInArrow`."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tailrace.worker.failures import describe_failure
from tailrace.worker.fast_path import with_fast_path, with_names_replaced
from tailrace.worker.iterator_call import Call
from tailrace.worker.iterator_function import IteratorFunction
from tailrace.worker.loading import CachingLoader, udf_info
from tailrace.worker.messages import ReplyEncoder, batch_reader
from tailrace.worker.plain import PlainBatch, PlainFrame, concat_batches

_MAX_HELD_ROWS = 81_920
"""Most input rows held without output. They are retried if the function raises an exception."""


def map_function(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs one batch per message through the user's map function."""
    from pyspark.worker import EvalConf, RunnerConf, read_udfs

    (function,) = spec["functions"]
    conf, loader = RunnerConf(dict(spec["conf"])), CachingLoader()
    evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
        loader, [udf_info(function, {0: 0})], spec["kind"], conf, EvalConf({})
    )
    _, declared = loader.loaded[-1]
    call = _on_flat_batches(evaluate, spec["kind"])
    mapped = MapFunction(function["name"], loader.function, call, spec["alone"], must_fail=spec["must_fail"])
    mapped.begin()
    read, replies, schema = batch_reader(spec), ReplyEncoder(), OutputSchema(_arrow_schema(declared, conf))

    def run(message: Any) -> Any:
        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        output = mapped.process(read(message), failures)
        elapsed = time.perf_counter_ns() - began
        return replies.encode(schema.unify(output), failures, [elapsed], mapped.take_completed())

    return run


def _arrow_schema(declared: Any, conf: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(declared, timezone=conf.timezone, prefers_large_types=conf.use_large_var_types)


def _on_flat_batches(evaluate: Callable[..., Any], eval_type: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return Spark's evaluation for flat batches; Spark's own batches have one struct column."""
    from pyspark.sql.conversion import ArrowBatchTransformer
    from pyspark.util import PythonEvalType

    if eval_type == PythonEvalType.SQL_MAP_ARROW_ITER_UDF:
        unchanged = {"flatten_struct": staticmethod(_identity), "wrap_struct": staticmethod(_identity)}
        names = {"ArrowBatchTransformer": type("Unchanged", (ArrowBatchTransformer,), unchanged)}
        flat = with_names_replaced(evaluate, names)
        if flat is not None:
            return lambda batches: flat(0, batches)
    on_structs = with_fast_path(evaluate, eval_type)

    def wrap(batch: Any) -> Any:
        if isinstance(batch, PlainBatch):
            return PlainFrame(batch.names, batch.columns)
        return ArrowBatchTransformer.wrap_struct(batch)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        for output in on_structs(0, map(wrap, batches)):
            yield output if isinstance(output, PlainBatch) else ArrowBatchTransformer.flatten_struct(output)

    return call


def _identity(batch: Any) -> Any:
    return batch


class MapFunction(IteratorFunction):
    """A function over batches of whole rows.

    It is not known which input rows an output row comes from, or whether the function holds rows back. So the rows of
    the last batch with output are pending, and all rows after it. Rows without output are held, to be retried after an
    exception. If none of them fails, the function may have held back other rows.
    """

    def __init__(self, name: str, function: Any, call: Call, retries: int, *, must_fail: bool) -> None:
        super().__init__(name, function, call, retries, must_fail=must_fail)
        self._pending_rows = 0
        self._completed_rows = 0
        self._held: deque[Any] = deque()
        self._held_rows = 0
        self._has_dropped = False

    def take_completed(self) -> int:
        """Return the number of input rows that were completed since the last call."""
        completed, self._completed_rows = self._completed_rows, 0
        return completed

    def _hold(self, batch: Any) -> None:
        self._pending_rows += batch.num_rows
        self._held.append(batch)
        self._held_rows += batch.num_rows
        while self._held_rows > _MAX_HELD_ROWS:
            self._held_rows -= self._held.popleft().num_rows
            self._has_dropped = True

    def _release(self, batch: Any, output: list[Any]) -> None:
        if batch is None or self._has_returned:
            self._complete(keep=0)
        elif any(each.num_rows for each in output):
            self._complete(keep=batch.num_rows)

    def _can_retry(self) -> bool:
        return bool(self._held) and not self._has_dropped

    def _retry_rows(self, failures: dict[int, str]) -> list[Any]:
        rows = [batch.slice(number, 1) for batch in self._held for number in range(batch.num_rows)]
        output: list[Any] = []
        for index, row in enumerate(rows, start=self._pending_rows - len(rows)):
            try:
                output += list(self._call(iter([row])))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is the failure of its row
                failures[index] = describe_failure(self.name, self.function, raised)
        self._complete(keep=0)
        return output

    def _complete(self, *, keep: int) -> None:
        """Complete all pending rows except the last `keep`, and hold none."""
        self._completed_rows += self._pending_rows - keep
        self._pending_rows = keep
        self._held.clear()
        self._held_rows, self._has_dropped = 0, False


class OutputSchema:
    """The Arrow schema of all replies: that of the first output.

    Args:
        declared: The schema that the user declared. Arrow infers a type from values, and in a batch of few rows all
            values may be null.
    """

    def __init__(self, declared: Any) -> None:
        self._declared = [field.type for field in declared]
        self._schema: Any = None

    def unify(self, output: Sequence[Any]) -> Any:
        """Return batches as one batch with this schema; None if they have no rows."""
        batches = [self._cast(each) for each in output if each.num_rows > 0]
        return concat_batches(batches) if batches else None

    def _cast(self, batch: Any) -> Any:
        if isinstance(batch, PlainBatch):
            return batch
        import pyarrow as pa

        if batch.schema == self._schema:
            return batch
        batch = self._with_typed_nulls(batch)
        if self._schema is None:
            self._schema = batch.schema
        if batch.schema == self._schema:
            return batch
        if batch.schema.names != self._schema.names:
            raise ValueError(f"a batch has the columns {batch.schema.names}, earlier ones had {self._schema.names}")
        columns = [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _with_typed_nulls(self, batch: Any) -> Any:
        import pyarrow as pa

        if not any(map(_contains_null_type, batch.schema.types)) or batch.num_columns != len(self._declared):
            return batch
        columns = [
            each.cast(declared) if _contains_null_type(each.type) else each
            for each, declared in zip(batch.columns, self._declared, strict=True)  # by position, as Spark reads them
        ]
        return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _contains_null_type(arrow_type: Any) -> bool:
    """Return whether Arrow could not infer a type, or part of it, from nulls and empty lists."""
    import pyarrow as pa

    if pa.types.is_struct(arrow_type):
        return any(_contains_null_type(field.type) for field in arrow_type)
    if pa.types.is_map(arrow_type):
        return _contains_null_type(arrow_type.key_type) or _contains_null_type(arrow_type.item_type)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _contains_null_type(arrow_type.value_type)
    return bool(pa.types.is_null(arrow_type))
