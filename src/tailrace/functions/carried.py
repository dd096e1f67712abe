"""The user's functions as a worker of a real-time query calls them.

It is sent to the worker by value, so it imports nothing of Tailrace's. What a function means is left to Spark's own
worker, which makes each of them as for its own operators: conversions, named arguments, broadcasts, profilers. Added is
what a stream needs: an exception becomes an answer beside the row that it is about, each call is timed, and a function
is loaded once per process.
"""

import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_KEPT = 16
"""So many functions stay loaded in a worker, from one batch to the next."""
_OWN_FILE = __file__
_ADDED = ("__tailrace_failure", "__tailrace_spent", "__tailrace_done")
"""Columns of an answer before those that functions make."""


def function(told: Mapping[str, Any]) -> tuple[Callable[..., Any], Any]:
    """A function for Spark's worker, and its type, by what the engine tells of the user's."""
    from pyspark.sql.types import StringType

    ways: dict[str, Callable[[Mapping[str, Any]], Callable[..., Any]]] = {
        "rows": _rows,
        "columns": _columns,
        "stream": _stream,
        "frames": _frames,
    }
    # Spark's worker converts what is not of a simple type; what it gets here is converted already.
    return ways[told["way"]](told), StringType()


class _Remembering:
    """Loads pickled functions as Spark's worker does, but each only once per process."""

    def loads(self, pickled: Any) -> Any:
        from pyspark import worker
        from pyspark.accumulators import _accumulatorRegistry
        from pyspark.serializers import CPickleSerializer

        kept: OrderedDict[bytes, Any] = vars(worker).setdefault("_tailrace_functions", OrderedDict())
        digest = hashlib.sha256(pickled).digest()
        if digest in kept:
            kept.move_to_end(digest)
            return kept[digest]
        counters = len(_accumulatorRegistry)
        loaded = CPickleSerializer().loads(bytes(pickled))  # type: ignore[no-untyped-call]
        if len(_accumulatorRegistry) == counters:  # an accumulator belongs to a task
            kept[digest] = loaded
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return loaded


class _Failure(Exception):
    """Ends a worker with the user's own traceback."""


def _described(name: str, raised: BaseException) -> str:
    """What went wrong, for the engine: which function, the exception, and the user's part of the traceback."""
    told = traceback.TracebackException.from_exception(raised, limit=-30)
    each: traceback.TracebackException | None = told
    while each is not None:
        each.stack = traceback.StackSummary.from_list([frame for frame in each.stack if _is_users(frame.filename)])
        each = each.__cause__ or each.__context__
    last = "".join(told.format_exception_only()).strip().splitlines()
    place = f" ({Path(told.stack[-1].filename).name} line {told.stack[-1].lineno})" if told.stack else ""
    return json.dumps(
        {
            "function": name,
            "error": f"{last[-1] if last else ''}{place}"[:2000],
            "traceback": "".join(told.format())[-20000:],
        }
    )


def _is_users(file: str) -> bool:
    return file != _OWN_FILE and f"{os.sep}pyspark{os.sep}" not in file and "pyspark.zip" not in file


def _info(each: Mapping[str, Any], places: Mapping[int, int]) -> Any:
    """A function as Spark's worker is told of it, its arguments at other places."""
    return SimpleNamespace(
        udfs=[bytes(command) for command in each["commands"]],
        args=[places[at] for at in each["args"]],
        kwargs={key: places[at] for key, at in each["kwargs"].items()},
        result_id=each["id"],
    )


# Rows, pickled: @udf without Arrow


def _rows(told: Mapping[str, Any]) -> Callable[..., Any]:
    from pyspark.util import PythonEvalType
    from pyspark.worker import RunnerConf, read_single_udf

    places = {at: at for at in range(len(told["inputs"]))}
    calls = []
    for number, each in enumerate(told["functions"]):
        offsets, call = read_single_udf(  # type: ignore[no-untyped-call]
            _Remembering(), _info(each, places), PythonEvalType.SQL_BATCHED_UDF, RunnerConf(dict(told["conf"])), number
        )
        calls.append((each["name"], offsets, call))

    def run(group: Sequence[Sequence[Any]]) -> Any:
        columns, spent = [], []
        failures: dict[int, str] = {}
        for name, offsets, call in calls:
            began = time.perf_counter_ns()
            results = []
            for row in group:
                try:
                    results.append(call(*[row[offset] for offset in offsets]))
                except MemoryError:
                    raise
                except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                    failures.setdefault(len(results), _described(name, raised))
                    results.append(None)
            columns.append(results)
            spent.append(time.perf_counter_ns() - began)
        return columns, failures or None, spent

    return run


# Columns, in Arrow: @pandas_udf, arrow_udf, @udf with Arrow


class _ColumnFunction:
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
        self._info = _info(each, places)
        self._conf = RunnerConf(dict(told["conf"]))
        self._evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
            _Remembering(),
            [self._info],
            told["kind"],
            self._conf,
            EvalConf({"input_type": json.dumps({"type": "struct", "fields": fields})}),
        )
        self._type: Any = None

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

        _, declared = read_command(_Remembering(), self._info.udfs[-1])  # type: ignore[arg-type]
        pandas = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
        zone = self._conf.timezone if self._told["kind"] in pandas else "UTC"
        return to_arrow_type(declared, timezone=zone, prefers_large_types=self._conf.use_large_var_types)


def _columns(told: Mapping[str, Any]) -> Callable[..., Any]:
    import pyarrow as pa

    functions = [_ColumnFunction(told, each) for each in told["functions"]]
    schema = pa.ipc.read_schema(pa.py_buffer(bytes(told["schema"])))
    names = [f"_{number}" for number in range(len(functions))]
    known: list[Any] = [None]

    def run(message: bytes) -> Any:
        batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        columns, spent = [], []
        failures: dict[int, str] = {}
        for each in functions:
            began = time.perf_counter_ns()
            try:
                (made,) = each.over([batch])
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                made = _row_by_row(each, batch, failures, raised)
            columns.append(made)
            spent.append(time.perf_counter_ns() - began)
        answer = pa.RecordBatch.from_arrays(columns, names)
        kind = None
        if known[0] is None or known[0] != answer.schema:
            known[0] = answer.schema
            kind = answer.schema.serialize().to_pybytes()
        return answer.serialize().to_pybytes(), failures or None, spent, kind

    return run


def _row_by_row(
    each: _ColumnFunction, batch: "pa.RecordBatch", failures: dict[int, str], raised: Exception
) -> "pa.Array":
    """The results for a batch that a function fails on, which it may not do for all of its rows."""
    import pyarrow as pa

    if batch.num_rows == 1:
        failures.setdefault(0, _described(each.name, raised))
        return each.nothing()
    parts: list[Any] = []
    for at in range(batch.num_rows):
        try:
            parts.extend(each.over([batch.slice(at, 1)]))
        except MemoryError:
            raise
        except Exception as alone:  # noqa: BLE001
            failures.setdefault(at, _described(each.name, alone))
            parts.append(None)
    return pa.concat_arrays([each.nothing() if part is None else part for part in parts])


# Columns, for a function that takes an iterator of them


def _stream(told: Mapping[str, Any]) -> Callable[..., Any]:
    (each,) = told["functions"]
    called = _ColumnFunction(told, each)
    return lambda batches: _stream_of_columns(called, iter(batches))


def _stream_of_columns(each: _ColumnFunction, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    """The results of a function that takes an iterator, called anew after an exception for what it left unanswered."""
    handed: deque[Any] = deque()
    again: deque[Any] = deque()
    clock = _Clock()
    arriving = _Arriving(batches)

    def feed() -> Iterator["pa.RecordBatch"]:
        while (batch := again.popleft() if again else arriving.next()) is not None:
            handed.append(batch)
            clock.start()
            yield batch
            clock.stop()

    while True:
        try:
            for made in each.over(feed()):
                clock.stop()
                _take(handed, len(made))
                yield _with_notes(made, None, clock.read())
                clock.start()
        except MemoryError:
            raise
        except Exception as raised:  # noqa: BLE001
            arriving.raise_if_broken()
            rows = [batch.slice(at, 1) for batch in handed for at in range(batch.num_rows)]
            handed.clear()
            if not rows:
                raise _Failure(json.loads(_described(each.name, raised))["traceback"]) from None
            if len(rows) == 1:
                yield _with_notes(each.nothing(), _described(each.name, raised), clock.read())
            else:
                again.extendleft(reversed(rows))
            continue
        return


def _take(handed: deque[Any], count: int) -> None:
    """Strike out the first rows of what a function has."""
    while count > 0:
        first = handed.popleft()
        if first.num_rows > count:
            handed.appendleft(first.slice(count))
        count -= first.num_rows


# Whole rows: mapInPandas, mapInArrow


def _frames(told: Mapping[str, Any]) -> Callable[..., Any]:
    from pyspark.worker import EvalConf, RunnerConf, read_udfs

    (each,) = told["functions"]
    conf = RunnerConf(dict(told["conf"]))
    evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
        _Remembering(), [_info(each, {0: 0})], told["kind"], conf, EvalConf({})
    )
    return lambda batches: _stream_of_frames(told, each["name"], evaluate, iter(batches))


def _stream_of_frames(
    told: Mapping[str, Any], name: str, evaluate: Callable[..., Any], batches: Iterator["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    """What a function makes of batches, each with the number of rows that it was done with before the last ones.

    After an exception it is called anew. Where nothing of the batch at hand has come yet, each of its rows is tried
    alone; where something has, nobody knows what is missing, and the worker ends with the exception.
    """
    clock = _Clock(told["limit_s"])
    frames = _Frames(name, evaluate, _Arriving(batches), _Shape(told["output"], told["conf"]), clock)
    try:
        for _ in range(told["alone"]):  # a worker has ended over one of them
            yield from frames.next_alone()
        while not frames.ended:
            yield from frames.stream()
    finally:
        clock.end()


class _Frames:
    """A function over batches of whole rows, and how far it is."""

    def __init__(
        self, name: str, evaluate: Callable[..., Any], arriving: "_Arriving", shape: "_Shape", clock: "_Clock"
    ) -> None:
        self._name = name
        self._evaluate = evaluate
        self._arriving = arriving
        self._shape = shape
        self._clock = clock
        self._again: deque[Any] = deque()
        self._current: Any = None
        self._made = False
        self._taken = 0
        self.ended = False

    def next_alone(self) -> Iterator["pa.RecordBatch"]:
        """What the function makes of the next batch in a call of its own, after which it is done with it."""
        batch = self._arriving.next()
        if batch is not None:
            self._begin(batch)
            try:
                yield from self._call(iter([batch]))
            except Exception as raised:  # noqa: BLE001 - whatever the user's function raises is its row's answer
                yield from self._failed(raised)
            self._current = None
            yield self._shape.note(self._notes())

    def stream(self) -> Iterator["pa.RecordBatch"]:
        """What one call of the function makes of all batches, up to its end or its first exception."""
        try:
            yield from self._call(self._feed())
            self.ended = True
        except Exception as raised:  # noqa: BLE001
            yield from self._failed(raised)

    def _call(self, batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from pyspark.sql.conversion import ArrowBatchTransformer

        for made in self._evaluate(0, map(ArrowBatchTransformer.wrap_struct, batches)):
            self._clock.stop()
            self._made = True
            yield self._shape.of(ArrowBatchTransformer.flatten_struct(made), self._notes())
            self._clock.start()
        self._clock.stop()

    def _feed(self) -> Iterator["pa.RecordBatch"]:
        while (batch := self._again.popleft() if self._again else self._arriving.next()) is not None:
            self._begin(batch)
            yield batch
            self._clock.stop()

    def _begin(self, batch: "pa.RecordBatch") -> None:
        self._taken += batch.num_rows
        self._current, self._made = batch, False
        self._clock.start()

    def _failed(self, raised: Exception) -> Iterator["pa.RecordBatch"]:
        self._clock.stop()
        self._arriving.raise_if_broken()
        batch, told = self._current, _described(self._name, raised)
        if isinstance(raised, MemoryError):
            raise raised
        if batch is None or self._made:
            raise _Failure(json.loads(told)["traceback"]) from None
        if batch.num_rows == 1:
            yield self._shape.failed(told, self._notes())
        else:
            self._taken -= batch.num_rows
            self._again.extendleft(batch.slice(at, 1) for at in reversed(range(batch.num_rows)))
        self._current = None

    def _notes(self) -> dict[str, str]:
        open_rows = self._current.num_rows if self._current is not None else 0
        return {"spent": str(self._clock.read()), "done": str(self._taken - open_rows)}


class _Shape:
    """The columns of a stream of answers: they cannot change in the middle of it."""

    def __init__(self, output: str, conf: Mapping[str, str]) -> None:
        self._output = output
        self._conf = conf
        self._schema: Any = None

    def of(self, made: "pa.RecordBatch", notes: Mapping[str, str]) -> "pa.RecordBatch":
        if made.num_rows == 0:
            return self._bare("", notes, made.schema)
        return self._noted(made, None, notes)

    def note(self, notes: Mapping[str, str]) -> "pa.RecordBatch":
        return self._bare("", notes, None)

    def failed(self, failure: str, notes: Mapping[str, str]) -> "pa.RecordBatch":
        return self._bare(failure, notes, None)

    def _bare(self, failure: str, notes: Mapping[str, str], schema: Any) -> "pa.RecordBatch":
        """A row that holds nothing but notes."""
        import pyarrow as pa

        schema = schema or self._declared()
        nulls = [pa.nulls(1, field.type) for field in schema]
        return self._noted(pa.RecordBatch.from_arrays(nulls, names=schema.names), failure, notes)

    def _noted(self, made: "pa.RecordBatch", failure: str | None, notes: Mapping[str, str]) -> "pa.RecordBatch":
        import pyarrow as pa

        rest = made.num_rows - 1
        added = [
            _first(failure, rest),
            _first(notes["spent"], rest),
            _first(notes["done"], rest),
        ]
        schema = pa.schema([*(pa.field(name, pa.string()) for name in _ADDED), *made.schema])
        if self._schema is None:
            self._schema = schema
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip([*added, *made.columns], self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _declared(self) -> Any:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructType
        from pyspark.worker import RunnerConf

        conf = RunnerConf(dict(self._conf))
        declared = StructType.fromJson(json.loads(self._output))
        return to_arrow_schema(declared, timezone=conf.timezone, prefers_large_types=conf.use_large_var_types)


class _Arriving:
    """Batches as they come. Where they cannot be read any more, no function is to blame."""

    def __init__(self, batches: Iterator["pa.RecordBatch"]) -> None:
        self._batches = batches
        self._broken: Exception | None = None

    def next(self) -> "pa.RecordBatch | None":
        try:
            return next(self._batches, None)
        except Exception as broken:
            self._broken = broken
            raise

    def raise_if_broken(self) -> None:
        if self._broken is not None:
            raise self._broken


# What the engine is told beside the results


def _with_notes(made: "pa.Array", failure: str | None, spent: int) -> "pa.RecordBatch":
    import pyarrow as pa

    rest = len(made) - 1
    notes = [_first(failure, rest), _first(str(spent), rest), _first(None, rest)]
    return pa.RecordBatch.from_arrays([*notes, made], [*_ADDED, "_0"])


def _first(text: str | None, more: int) -> "pa.Array":
    """A note in the first row."""
    import pyarrow as pa

    return pa.array([text] + [None] * more, pa.string()) if more >= 0 else pa.nulls(0, pa.string())


class _Clock:
    """How long the user's function worked; the time in which it waits for rows is not its own."""

    def __init__(self, limit_s: float = 0) -> None:
        self._spent = 0
        self._since = 0
        self._limit_ns = int(limit_s * 1e9)
        self._ended = threading.Event()
        if limit_s > 0:
            threading.Thread(target=self._watch, args=(min(limit_s / 4, 1.0),), daemon=True).start()

    def start(self) -> None:
        if self._since == 0:
            self._since = time.perf_counter_ns()

    def stop(self) -> None:
        if self._since != 0:
            self._spent += time.perf_counter_ns() - self._since
            self._since = 0

    def read(self) -> int:
        """The time since it was read last."""
        spent, self._spent = self._spent, 0
        return spent

    def end(self) -> None:
        """Watch no more: the worker goes on to other work."""
        self._ended.set()

    def _watch(self, every_s: float) -> None:
        while not self._ended.wait(every_s):
            since = self._since
            if since != 0 and time.perf_counter_ns() - since > self._limit_ns:
                # Not an exception: nothing can be raised inside a function that hangs.
                sys.stderr.write(f"a Python function took longer than {self._limit_ns / 1e9:g} s; its worker ends\n")
                os._exit(1)
