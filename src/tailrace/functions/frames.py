"""Functions on whole rows: `mapInPandas` and `mapInArrow`."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tailrace.functions.arriving import Arriving
from tailrace.functions.clock import Clock
from tailrace.functions.failures import FunctionFailed, described
from tailrace.functions.loading import Remembering, udf_info
from tailrace.functions.notes import ADDED, in_first_row

if TYPE_CHECKING:
    import pyarrow as pa


def frames(told: Mapping[str, Any]) -> Callable[..., Any]:
    """A function that makes as many rows as it likes of each."""
    from pyspark.worker import EvalConf, RunnerConf, read_udfs

    (each,) = told["functions"]
    conf = RunnerConf(dict(told["conf"]))
    evaluate, _, _, _ = read_udfs(  # type: ignore[no-untyped-call]
        Remembering(), [udf_info(each, {0: 0})], told["kind"], conf, EvalConf({})
    )
    return lambda batches: _stream_of_frames(told, each["name"], evaluate, iter(batches))


def _stream_of_frames(
    told: Mapping[str, Any], name: str, evaluate: Callable[..., Any], batches: Iterator["pa.RecordBatch"]
) -> Iterator["pa.RecordBatch"]:
    """What a function makes of batches, each with the number of rows that it was done with before the last ones.

    After an exception it is called anew. Where nothing of the batch at hand has come yet, each of its rows is tried
    alone; where something has, nobody knows what is missing, and the worker ends with the exception.
    """
    clock = Clock(told["limit_s"])
    mapped = Frames(name, evaluate, Arriving(batches), Shape(told["output"], told["conf"]), clock)
    try:
        for _ in range(told["alone"]):  # a worker has ended over one of them
            yield from mapped.next_alone()
        while not mapped.ended:
            yield from mapped.stream()
    finally:
        clock.end()


class Frames:
    """A function over batches of whole rows, and how far it is."""

    def __init__(
        self, name: str, evaluate: Callable[..., Any], arriving: Arriving, shape: "Shape", clock: Clock
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
        batch, told = self._current, described(self._name, raised)
        if isinstance(raised, MemoryError):
            raise raised
        if batch is None or self._made:
            raise FunctionFailed(json.loads(told)["traceback"]) from None
        if batch.num_rows == 1:
            yield self._shape.failed(told, self._notes())
        else:
            self._taken -= batch.num_rows
            self._again.extendleft(batch.slice(at, 1) for at in reversed(range(batch.num_rows)))
        self._current = None

    def _notes(self) -> dict[str, str]:
        open_rows = self._current.num_rows if self._current is not None else 0
        return {"spent": str(self._clock.read()), "done": str(self._taken - open_rows)}


class Shape:
    """The columns of a stream of answers: they cannot change in the middle of it."""

    def __init__(self, output: str, conf: Mapping[str, str]) -> None:
        self._output = output
        self._conf = conf
        self._schema: Any = None

    def of(self, made: "pa.RecordBatch", notes: Mapping[str, str]) -> "pa.RecordBatch":
        """What a function made, with notes."""
        if made.num_rows == 0:
            return self._bare("", notes, made.schema)
        return self._noted(made, None, notes)

    def note(self, notes: Mapping[str, str]) -> "pa.RecordBatch":
        """Notes alone."""
        return self._bare("", notes, None)

    def failed(self, failure: str, notes: Mapping[str, str]) -> "pa.RecordBatch":
        """What went wrong with the row at hand."""
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
            in_first_row(failure, rest),
            in_first_row(notes["spent"], rest),
            in_first_row(notes["done"], rest),
        ]
        schema = pa.schema([*(pa.field(name, pa.string()) for name in ADDED), *made.schema])
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
