"""A short way between the engine and pandas for plain columns: numbers without nulls, and text.

Spark's worker takes columns in Arrow and converts any type there is, which takes longer than most functions where a
call has few rows. Plain columns come and go as numpy has them. Everything else goes Spark's way, batch by batch.
"""

from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class PlainBatch:
    """A batch of plain columns, where Spark's worker has one of Arrow."""

    def __init__(self, names: Sequence[str], columns: Sequence[Any]) -> None:
        self.names = names
        self.columns = columns
        self.num_rows = len(columns[0])

    def __len__(self) -> int:
        return self.num_rows

    def column(self, at: int) -> Any:
        """One of its columns."""
        return self.columns[at]

    def select(self, places: Sequence[int]) -> "PlainBatch":
        """Some of its columns."""
        return PlainBatch([self.names[at] for at in places], [self.columns[at] for at in places])

    def slice(self, start: int, length: int | None = None) -> "PlainBatch":
        """Some of its rows."""
        end = self.num_rows if length is None else start + length
        return PlainBatch(self.names, [column[start:end] for column in self.columns])

    def to_arrow(self, *, made: bool) -> "pa.RecordBatch":
        """The same in Arrow. In what functions made, not a number is null, as Spark has it."""
        import pyarrow as pa

        columns = [_array(column, made=made) for column in self.columns]
        return pa.RecordBatch.from_arrays(columns, list(self.names))


class PlainFrame(PlainBatch):
    """One whose columns are those of a frame."""

    def to_arrow(self, *, made: bool) -> "pa.RecordBatch":
        """All columns in one, as Spark has a frame."""
        from pyspark.sql.conversion import ArrowBatchTransformer

        return ArrowBatchTransformer.wrap_struct(super().to_arrow(made=made))


def _array(column: Any, *, made: bool) -> "pa.Array":
    import pyarrow as pa

    return pa.array(column, type=pa.string() if column.dtype.hasobject else None, from_pandas=made)


def joined(batches: Sequence[Any]) -> Any:
    """Batches that functions made, one after the other: plain if all of them are."""
    if len(batches) == 1:
        return batches[0]
    import numpy as np
    import pyarrow as pa

    if all(isinstance(batch, PlainBatch) for batch in batches):
        columns = zip(*(batch.columns for batch in batches), strict=True)
        return PlainBatch(batches[0].names, [np.concatenate(column) for column in columns])
    columns = zip(*(in_arrow(batch, made=True).columns for batch in batches), strict=True)
    schema = next(batch.schema for batch in batches if not isinstance(batch, PlainBatch))
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column) for column in columns], schema=schema)


def beside(batches: Sequence[Any]) -> Any:
    """Batches of one column that functions made, side by side: plain if all of them are."""
    names = [f"_{number}" for number in range(len(batches))]
    if all(isinstance(batch, PlainBatch) for batch in batches):
        return PlainBatch(names, [batch.column(0) for batch in batches])
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([in_arrow(batch, made=True).column(0) for batch in batches], names)


def in_arrow(batch: Any, *, made: bool) -> "pa.RecordBatch":
    """A batch in Arrow, whatever it is in; functions may have made it."""
    return batch.to_arrow(made=made) if isinstance(batch, PlainBatch) else batch


class PlainReader:
    """Makes batches of what the engine sends, by the batches' kind in Arrow."""

    def __init__(self, schema: "pa.Schema") -> None:
        import numpy as np

        self._names = schema.names
        self._kinds = [_numpy_type(field.type) for field in schema]
        self._from_bytes, self._from_texts = np.frombuffer, np.array

    def batch(self, message: Sequence[Any]) -> PlainBatch:
        """A batch: numbers come as bytes, texts one by one."""
        columns = [
            self._from_texts(values, dtype=object) if kind is None else self._from_bytes(values, dtype=kind)
            for values, kind in zip(message, self._kinds, strict=True)
        ]
        return PlainBatch(self._names, columns)


def _numpy_type(kind: "pa.DataType") -> Any:
    import pyarrow as pa

    return None if pa.types.is_string(kind) or pa.types.is_large_string(kind) else kind.to_pandas_dtype()


def with_short_ways(evaluate: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """A function of Spark's worker that takes plain batches, too; the worker's own module stays as it is."""
    from pyspark.util import PythonEvalType

    of_columns = (PythonEvalType.SQL_SCALAR_PANDAS_UDF, PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF)
    if kind not in (*of_columns, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF):
        return evaluate  # the others need not wait for pandas to be imported
    conversions = _conversions(PlainResults() if kind in of_columns else PlainFrames())
    return with_replaced(evaluate, conversions) or _in_arrow_alone(evaluate)


def with_replaced(evaluate: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any] | None:
    """A copy of a function for which some names of its module mean something else, if it uses all of them."""
    if not isinstance(evaluate, FunctionType) or not names.keys() <= _names_in(evaluate.__code__):
        return None
    return FunctionType(
        evaluate.__code__,
        {**evaluate.__globals__, **names},
        evaluate.__name__,
        evaluate.__defaults__,
        evaluate.__closure__,
    )


def _names_in(code: CodeType) -> set[str]:
    inner = [_names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return {*code.co_names}.union(*inner)


def _in_arrow_alone(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a worker that converts in another way, whatever comes."""
    return lambda split, batches: evaluate(split, (in_arrow(batch, made=False) for batch in batches))


def _conversions(results: "PlainResults") -> dict[str, Any]:
    """Spark's conversions, by the names under which its worker knows them, with a short way in front."""
    import pandas as pd
    from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion

    def to_pandas(batch: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(batch, PlainBatch):
            return ArrowBatchTransformer.to_pandas(batch, *args, **options)
        if options.get("prefer_int_ext_dtype"):
            return ArrowBatchTransformer.to_pandas(batch.to_arrow(made=False), *args, **options)
        # Copies, for the function to write into if it likes.
        named = [(name, column.copy()) for name, column in zip(batch.names, batch.columns, strict=True)]
        if isinstance(batch, PlainFrame):
            return [pd.DataFrame(dict(named), copy=False)]
        return [pd.Series(column, name=name, copy=False) for name, column in named]

    def convert(data: Any, schema: Any, **options: Any) -> Any:
        can_be = options.get("assign_cols_by_name") and not options.get("prefers_large_types")
        batch = results.batch(data, schema) if can_be else None
        return PandasToArrowConversion.convert(data, schema, **options) if batch is None else batch

    return {
        "ArrowBatchTransformer": type("ToPandas", (ArrowBatchTransformer,), {"to_pandas": staticmethod(to_pandas)}),
        "PandasToArrowConversion": type("FromPandas", (PandasToArrowConversion,), {"convert": staticmethod(convert)}),
    }


class PlainResults:
    """What functions made, where it is plain and of the types that they declare."""

    def __init__(self) -> None:
        import numpy as np
        import pandas as pd
        from pyspark.sql import types

        self._made_of: dict[Any, Any] = {
            types.DoubleType: np.dtype("float64"),
            types.FloatType: np.dtype("float32"),
            types.LongType: np.dtype("int64"),
            types.IntegerType: np.dtype("int32"),
            types.ShortType: np.dtype("int16"),
            types.ByteType: np.dtype("int8"),
            types.BooleanType: np.dtype("bool"),
            types.StringType: np.dtype("object"),
        }
        """By Spark's type, what numpy has for it."""
        self._series, self._frame = pd.Series, pd.DataFrame

    def batch(self, data: Any, schema: Any) -> PlainBatch | None:
        """Results of functions, or None where one is not plain."""
        return self._of_columns(data, schema) if isinstance(data, list) else None

    def _of_columns(self, made: Sequence[Any], declared: Any) -> PlainBatch | None:
        columns = [self._column(each, field.dataType) for each, field in zip(made, declared.fields, strict=True)]
        return None if not columns or any(column is None for column in columns) else PlainBatch(declared.names, columns)

    def _column(self, series: Any, declared: Any) -> Any:
        expected = self._made_of.get(type(declared))
        if expected is None or type(series) is not self._series or series.dtype != expected:
            return None
        # A copy: what the function does with its own afterwards does not change what it has given.
        values = series.to_numpy(copy=True)
        return values if not expected.hasobject or _are_texts(values) else None


def _are_texts(values: Any) -> bool:
    """Whether these are texts that can be sent, or nothing: half of a surrogate pair is none."""
    try:
        return all(each is None or (type(each) is str and (each.isascii() or each.encode())) for each in values)
    except UnicodeEncodeError:
        return False


class PlainFrames(PlainResults):
    """The same for functions that make frames."""

    def batch(self, data: Any, schema: Any) -> PlainBatch | None:
        """The columns of a frame."""
        if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], self._frame):
            return None
        frame, declared = data[0], schema.fields[0].dataType
        if not all(field.nullable for field in declared.fields):
            return None  # Spark's way finds nulls where there must be none
        if not frame.columns.is_unique or not all(name in frame.columns for name in declared.names):
            return None
        return self._of_columns([frame[name] for name in declared.names], declared)
