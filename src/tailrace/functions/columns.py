"""Functions on columns in Arrow: `@pandas_udf`, `arrow_udf`, `@udf` with Arrow."""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.functions.arriving import Arriving
from tailrace.functions.clock import Clock
from tailrace.functions.failures import FunctionFailed, described
from tailrace.functions.loading import Remembering, udf_info
from tailrace.functions.notes import with_notes
from tailrace.functions.numbers import Numbers

if TYPE_CHECKING:
    import pyarrow as pa


class ColumnFunction:
    """One function on columns, as Spark's worker evaluates it."""

    def __init__(self, told: Mapping[str, Any], each: Mapping[str, Any]) -> None:
        from pyspark.worker import EvalConf, RunnerConf, read_udfs

        taken = sorted({*each["args"], *each["kwargs"].values()})
        self.name = each["name"]
        self._told = told
        self._columns = taken or [0]  # one that takes nothing is still called once per row
        places = {at: number for number, at in enumerate(taken)}
        fields = [
            {"name": f"_{number}", "type": json.loads(told["inputs"][at]), "nullable": True, "metadata": {}}
            for number, at in enumerate(taken)
        ]
        self._info = udf_info(each, places)
        self._conf = RunnerConf(dict(told["conf"]))
        self._evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
            Remembering(),
            [self._info],
            told["kind"],
            self._conf,
            EvalConf({"input_type": json.dumps({"type": "struct", "fields": fields})}),
        )
        self._type: Any = None
        self._numbers = self._short_way(told, [json.loads(told["inputs"][at]) for at in taken])

    def of(self, batch: "pa.RecordBatch") -> "pa.Array":
        """Its results for a batch of every input."""
        if self._numbers is not None and self._numbers.holds:
            made = self._numbers.over(batch.select(self._columns))
            if made is not None:
                return self._fitting(made)
        (made,) = self.over([batch])
        return made

    def _short_way(self, told: Mapping[str, Any], inputs: list[Any]) -> Numbers | None:
        from pyspark.util import PythonEvalType
        from pyspark.worker import read_single_udf, wrap_kwargs_support

        if told["kind"] != PythonEvalType.SQL_SCALAR_PANDAS_UDF or self._conf.prefer_int_ext_dtype:
            return None
        udf: Any = read_single_udf(Remembering(), self._info, told["kind"], self._conf, 0)  # type: ignore[no-untyped-call]
        function, args, kwargs, declared = udf
        returns = declared.jsonValue()
        if not all(isinstance(each, str) for each in (*inputs, returns)) or not Numbers.can(inputs, returns):
            return None
        call, offsets = wrap_kwargs_support(function, args, kwargs)  # type: ignore[no-untyped-call]
        return Numbers(call, offsets, returns)

    def over(self, batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.Array"]:
        """Its results for batches of every input, one array for each that it makes."""
        for made in self._evaluate(0, (batch.select(self._columns) for batch in batches)):
            yield self._fitting(made.column(0))

    def nothing(self) -> "pa.Array":
        """A result of one row that is none."""
        import pyarrow as pa

        if self._type is None:
            self._type = self._declared_type()
        return pa.nulls(1, self._type)

    def _fitting(self, made: "pa.Array") -> "pa.Array":
        """Of the same type as those before: a stream of Arrow has one."""
        if self._type is None:
            self._type = made.type
        return made if made.type == self._type else made.cast(self._type)

    def _declared_type(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_type
        from pyspark.util import PythonEvalType
        from pyspark.worker_util import read_command

        _, declared = read_command(Remembering(), self._info.udfs[-1])  # type: ignore[arg-type]
        pandas = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
        zone = self._conf.timezone if self._told["kind"] in pandas else "UTC"
        return to_arrow_type(declared, timezone=zone, prefers_large_types=self._conf.use_large_var_types)


def columns(told: Mapping[str, Any]) -> Callable[..., Any]:
    """All functions of an operator over a batch of rows."""
    import pyarrow as pa

    functions = [ColumnFunction(told, each) for each in told["functions"]]
    schema = pa.ipc.read_schema(pa.py_buffer(bytes(told["schema"])))
    names = [f"_{number}" for number in range(len(functions))]
    known: list[Any] = [None]

    def run(message: bytes) -> Any:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        results, spent = [], []
        failures: dict[int, str] = {}
        for each in functions:
            began = time.perf_counter_ns()
            try:
                made = each.of(batch)
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                made = _row_by_row(each, batch, failures, raised)
            results.append(made)
            spent.append(time.perf_counter_ns() - began)
        answer = pa.RecordBatch.from_arrays(results, names)
        kind = None
        if known[0] is None or known[0] != answer.schema:
            known[0] = answer.schema
            kind = answer.schema.serialize().to_pybytes()
        return answer.serialize().to_pybytes(), failures or None, spent, kind

    return run


def _row_by_row(
    each: ColumnFunction, batch: "pa.RecordBatch", failures: dict[int, str], raised: Exception
) -> "pa.Array":
    """The results for a batch that a function fails on, which it may not do for all of its rows."""
    import pyarrow as pa

    if batch.num_rows == 1:
        failures.setdefault(0, described(each.name, raised))
        return each.nothing()
    parts: list[Any] = []
    for at in range(batch.num_rows):
        try:
            parts.extend(each.over([batch.slice(at, 1)]))
        except MemoryError:
            raise
        except Exception as alone:  # noqa: BLE001
            failures.setdefault(at, described(each.name, alone))
            parts.append(None)
    return pa.concat_arrays([each.nothing() if part is None else part for part in parts])


def stream(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that takes an iterator of columns."""
    (each,) = told["functions"]
    called = ColumnFunction(told, each)
    return lambda batches: _stream_of_columns(called, Arriving(iter(batches)), told["alone"], Clock(told["limit_s"]))


def _stream_of_columns(
    each: ColumnFunction, arriving: Arriving, alone: int, clock: Clock
) -> Iterator["pa.RecordBatch"]:
    """The results of a function that takes an iterator.

    After an exception each row that it left unanswered is tried in a call of its own, and the function is called anew
    for those that come. The first rows are tried so, too, where a worker has ended over one of them.
    """
    handed: deque[Any] = deque()

    def feed() -> Iterator["pa.RecordBatch"]:
        while (batch := arriving.next()) is not None:
            handed.append(batch)
            clock.start()
            yield batch
            clock.stop()

    try:
        for _ in range(alone):
            if (batch := arriving.next()) is not None:
                yield _alone(each, batch, clock)
        while True:
            try:
                for made in each.over(feed()):
                    clock.stop()
                    _take(handed, len(made))
                    yield with_notes(made, None, clock.read())
                    clock.start()
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                arriving.raise_if_broken()
                yield from (_alone(each, row, clock) for row in _unanswered(each, handed, raised))
                continue
            return
    finally:
        clock.end()


def _unanswered(each: ColumnFunction, handed: deque[Any], raised: Exception) -> list["pa.RecordBatch"]:
    """The rows that a function has not answered, each by itself; with one of them it has to do that it failed."""
    rows = [batch.slice(at, 1) for batch in handed for at in range(batch.num_rows)]
    handed.clear()
    if not rows:
        raise FunctionFailed(json.loads(described(each.name, raised))["traceback"]) from None
    return rows


def _alone(each: ColumnFunction, row: "pa.RecordBatch", clock: Clock) -> "pa.RecordBatch":
    """The result of one row in a call of its own, or what went wrong."""
    import pyarrow as pa

    clock.start()
    made, failure = each.nothing(), None
    try:
        made = pa.concat_arrays(list(each.over([row])))
    except MemoryError:
        raise
    except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
        failure = described(each.name, raised)
    clock.stop()
    return with_notes(made, failure, clock.read())


def _take(handed: deque[Any], count: int) -> None:
    """Strike out the first rows of what a function has."""
    while count > 0:
        first = handed.popleft()
        if first.num_rows > count:
            handed.appendleft(first.slice(count))
        count -= first.num_rows
