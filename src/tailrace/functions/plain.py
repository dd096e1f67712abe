"""A short way between Arrow and pandas for plain columns.

Spark's worker converts any type there is, which takes longer than most functions where a call has few rows. Numbers
without nulls and text need nothing of it. Everything else goes Spark's way, batch by batch.
"""

from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


def with_short_ways(evaluate: Callable[..., Any], kind: int) -> Callable[..., Any]:
    """A function of Spark's worker that takes them, if it is one on pandas; the worker's own module stays as it is."""
    from pyspark.util import PythonEvalType

    on_pandas = (
        PythonEvalType.SQL_SCALAR_PANDAS_UDF,
        PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
        PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,
    )
    if kind not in on_pandas:  # the others need not wait for pandas to be imported
        return evaluate
    conversions = _conversions()
    if not isinstance(evaluate, FunctionType) or not conversions.keys() <= evaluate.__globals__.keys():
        return evaluate
    return FunctionType(
        evaluate.__code__,
        {**evaluate.__globals__, **conversions},
        evaluate.__name__,
        evaluate.__defaults__,
        evaluate.__closure__,
    )


def _conversions() -> dict[str, Any]:
    """Spark's conversions, by the names under which its worker knows them, with a short way in front."""
    from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion

    plain = PlainColumns()

    def to_pandas(batch: Any, *args: Any, **options: Any) -> Any:
        columns = None
        if options.get("df_for_struct") and not options.get("prefer_int_ext_dtype"):
            columns = plain.to_pandas(batch)
        return ArrowBatchTransformer.to_pandas(batch, *args, **options) if columns is None else columns

    def convert(data: Any, schema: Any, **options: Any) -> Any:
        batch = None
        if options.get("assign_cols_by_name") and not options.get("prefers_large_types"):
            batch = plain.from_pandas(data, schema)
        return PandasToArrowConversion.convert(data, schema, **options) if batch is None else batch

    return {
        "ArrowBatchTransformer": type("ToPandas", (ArrowBatchTransformer,), {"to_pandas": staticmethod(to_pandas)}),
        "PandasToArrowConversion": type("FromPandas", (PandasToArrowConversion,), {"convert": staticmethod(convert)}),
    }


class PlainColumns:
    """Columns that are the same in Arrow and in pandas."""

    def __init__(self) -> None:
        import numpy as np
        import pandas as pd
        import pyarrow as pa
        from pyspark.sql import types

        self._made_of: dict[Any, tuple[Any, pa.DataType]] = {
            types.DoubleType: (np.dtype("float64"), pa.float64()),
            types.FloatType: (np.dtype("float32"), pa.float32()),
            types.LongType: (np.dtype("int64"), pa.int64()),
            types.IntegerType: (np.dtype("int32"), pa.int32()),
            types.ShortType: (np.dtype("int16"), pa.int16()),
            types.ByteType: (np.dtype("int8"), pa.int8()),
            types.BooleanType: (np.dtype("bool"), pa.bool_()),
            types.StringType: (np.dtype("object"), pa.string()),
        }
        """By Spark's type, what pandas has for it, and Arrow."""
        self._text = pa.string()
        self._numbers = {arrow for _, arrow in self._made_of.values()} - {self._text}
        self._series, self._frame = pd.Series, pd.DataFrame
        self._arrow = pa

    def to_pandas(self, batch: "pa.RecordBatch") -> "list[pd.Series | pd.DataFrame] | None":
        """Each column, a struct as a frame; None where one is not plain."""
        columns: list[pd.Series | pd.DataFrame] = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if self._is_plain(column):
                columns.append(self._series(_numpy(column), name=name, copy=False))
            else:
                frame = self._frame_of(column)
                if frame is None:
                    return None
                columns.append(frame)
        return columns or None

    def from_pandas(self, data: Any, schema: Any) -> "pa.RecordBatch | None":
        """Results of functions as a batch, or None where one is not plain."""
        if not isinstance(data, list) or not data:
            return None
        arrays = []
        for made, field in zip(data, schema.fields, strict=True):
            of = self._struct_of if isinstance(made, self._frame) else self._array_of
            array = of(made, field.dataType)
            if array is None:
                return None
            arrays.append(array)
        return self._arrow.RecordBatch.from_arrays(arrays, schema.names)

    def _is_plain(self, column: "pa.Array") -> bool:
        return column.type == self._text or (column.null_count == 0 and column.type in self._numbers)

    def _frame_of(self, column: "pa.Array") -> "pd.DataFrame | None":
        if not self._arrow.types.is_struct(column.type) or column.null_count > 0:
            return None
        names, fields = [field.name for field in column.type], column.flatten()
        if not names or len({*names}) < len(names) or not all(map(self._is_plain, fields)):
            return None
        return self._frame({name: _numpy(field) for name, field in zip(names, fields, strict=True)}, copy=False)

    def _struct_of(self, frame: "pd.DataFrame", declared: Any) -> "pa.StructArray | None":
        names = declared.names
        if not names or not frame.columns.is_unique or not all(name in frame.columns for name in names):
            return None
        arrays = [self._array_of(frame[field.name], field.dataType) for field in declared.fields]
        if any(array is None for array in arrays):
            return None
        return self._arrow.StructArray.from_arrays(arrays, names)

    def _array_of(self, series: Any, declared: Any) -> "pa.Array | None":
        expected = self._made_of.get(type(declared))
        if expected is None or type(series) is not self._series or series.dtype != expected[0]:
            return None
        try:
            # Not a number is null, as Spark has it.
            return self._arrow.array(series.to_numpy(), type=expected[1], from_pandas=True)
        except self._arrow.ArrowException:
            return None


def _numpy(column: "pa.Array") -> Any:
    """The same values, for the function to write into if it likes."""
    return column.to_numpy(zero_copy_only=False, writable=True)
