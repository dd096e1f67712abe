"""Functions on whole rows: `mapInPandas` and `mapInArrow`."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tailrace.worker.failures import described
from tailrace.worker.iterated import Iterated
from tailrace.worker.loading import Remembering, udf_info
from tailrace.worker.messages import Answers, reader
from tailrace.worker.plain import PlainBatch, PlainFrame, joined
from tailrace.worker.pulling import Call
from tailrace.worker.short_ways import with_replaced, with_short_ways

_MOST_HELD = 81_920
"""So many rows may a function take without making anything of them, and have them back when it raises."""


def frames(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that makes as many rows as it likes of each, batch by batch."""
    from pyspark.worker import EvalConf, RunnerConf, read_udfs

    (each,) = told["functions"]
    conf, loader = RunnerConf(dict(told["conf"])), Remembering()
    evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
        loader, [udf_info(each, {0: 0})], told["kind"], conf, EvalConf({})
    )
    _, declared = loader.loaded[-1]
    call = _flat(evaluate, told["kind"])
    mapped = Frames(each["name"], loader.function, call, told["alone"], must_fail=told["must_fail"])
    mapped.begin()
    read, answers, shape = reader(told), Answers(), Shape(_arrow_schema(declared, conf))

    def run(message: Any) -> Any:
        began = time.perf_counter_ns()
        failures: dict[int, str] = {}
        made = mapped.over(read(message), failures)
        spent = time.perf_counter_ns() - began
        return answers.of(shape.of(made), failures, [spent], mapped.done())

    return run


def _arrow_schema(declared: Any, conf: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(declared, timezone=conf.timezone, prefers_large_types=conf.use_large_var_types)


def _flat(evaluate: Callable[..., Any], kind: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Spark's evaluation, whose batches have all columns in one, on batches that have not."""
    from pyspark.sql.conversion import ArrowBatchTransformer
    from pyspark.util import PythonEvalType

    if kind == PythonEvalType.SQL_MAP_ARROW_ITER_UDF:
        as_it_is = {"flatten_struct": staticmethod(_same), "wrap_struct": staticmethod(_same)}
        names = {"ArrowBatchTransformer": type("AsItIs", (ArrowBatchTransformer,), as_it_is)}
        on_flat = with_replaced(evaluate, names)
        if on_flat is not None:
            return lambda batches: on_flat(0, batches)
    on_whole = with_short_ways(evaluate, kind)

    def whole(batch: Any) -> Any:
        if isinstance(batch, PlainBatch):
            return PlainFrame(batch.names, batch.columns)
        return ArrowBatchTransformer.wrap_struct(batch)

    def call(batches: Iterator[Any]) -> Iterator[Any]:
        for made in on_whole(0, map(whole, batches)):
            yield made if isinstance(made, PlainBatch) else ArrowBatchTransformer.flatten_struct(made)

    return call


def _same(batch: Any) -> Any:
    return batch


class Frames(Iterated):
    """A function over batches of whole rows.

    Whether it keeps rows back cannot be known: those of the last batch of which it made something stay open, and all
    after it, of which it made nothing; these are held, to be tried again. Where one that has raised does not fail on
    any of them, it may have kept back others.
    """

    def __init__(self, name: str, function: Any, call: Call, alone: int, *, must_fail: bool) -> None:
        super().__init__(name, function, call, alone, must_fail=must_fail)
        self._open = 0
        self._done = 0
        self._held: deque[Any] = deque()
        self._rows_held = 0
        self._forgot = False

    def done(self) -> int:
        """How many of the open rows were closed since this was asked last."""
        done, self._done = self._done, 0
        return done

    def _hold(self, batch: Any) -> None:
        self._open += batch.num_rows
        self._held.append(batch)
        self._rows_held += batch.num_rows
        while self._rows_held > _MOST_HELD:
            self._rows_held -= self._held.popleft().num_rows
            self._forgot = True

    def _note(self, batch: Any, made: list[Any]) -> None:
        if batch is None or self._wants_no_more:
            self._close(but=0)
        elif any(each.num_rows for each in made):
            self._close(but=batch.num_rows)

    def _knows_all(self) -> bool:
        return bool(self._held) and not self._forgot

    def _one_by_one(self, failures: dict[int, str]) -> list[Any]:
        rows = [batch.slice(at, 1) for batch in self._held for at in range(batch.num_rows)]
        made: list[Any] = []
        for at, row in enumerate(rows, start=self._open - len(rows)):
            try:
                made += list(self._call(iter([row])))
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                failures[at] = described(self.name, self.function, raised)
        self._close(but=0)
        return made

    def _close(self, *, but: int) -> None:
        """All open rows are done with but the last ones; nothing is held any more."""
        self._done += self._open - but
        self._open = but
        self._held.clear()
        self._rows_held, self._forgot = 0, False


class Shape:
    """The columns of answers: as those of the first.

    Args:
        declared: Their types as the user declared them. Arrow finds a type by looking at values, and in a batch of few
            rows they may all be null.
    """

    def __init__(self, declared: Any) -> None:
        self._declared = [field.type for field in declared]
        self._schema: Any = None

    def of(self, made: Sequence[Any]) -> Any:
        """Batches as one, or None where there is nothing."""
        batches = [self._fitting(each) for each in made if each.num_rows > 0]
        return joined(batches) if batches else None

    def _fitting(self, made: Any) -> Any:
        if isinstance(made, PlainBatch):
            return made
        import pyarrow as pa

        if made.schema == self._schema:
            return made
        made = self._with_typed_nulls(made)
        if self._schema is None:
            self._schema = made.schema
        if made.schema == self._schema:
            return made
        if made.schema.names != self._schema.names:
            raise ValueError(f"a batch has the columns {made.schema.names}, those before had {self._schema.names}")
        columns = [column.cast(field.type) for column, field in zip(made.columns, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _with_typed_nulls(self, made: Any) -> Any:
        import pyarrow as pa

        if not any(map(_lacks_type, made.schema.types)) or made.num_columns != len(self._declared):
            return made
        columns = [
            each.cast(declared) if _lacks_type(each.type) else each
            for each, declared in zip(made.columns, self._declared, strict=True)  # by position, as Spark reads them
        ]
        return pa.RecordBatch.from_arrays(columns, made.schema.names)


def _lacks_type(kind: Any) -> bool:
    """Whether Arrow has seen nothing but nulls, or empty lists, there or within."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return any(_lacks_type(field.type) for field in kind)
    if pa.types.is_map(kind):
        return _lacks_type(kind.key_type) or _lacks_type(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lacks_type(kind.value_type)
    return bool(pa.types.is_null(kind))
