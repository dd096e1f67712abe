"""Plain columns as pandas has them, there and back."""

from collections.abc import Sequence
from typing import Any

from tailrace.worker.blocks import frame_maker
from tailrace.worker.plain import PlainBatch, are_texts


def conversions(results: "PlainResults") -> dict[str, Any]:
    """Spark's conversions, by the names under which its worker knows them, with a short way in front."""
    from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion

    def to_pandas(batch: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(batch, PlainBatch):
            return ArrowBatchTransformer.to_pandas(batch, *args, **options)
        if options.get("prefer_int_ext_dtype"):
            return ArrowBatchTransformer.to_pandas(batch.to_arrow(made=False), *args, **options)
        # Copies, for the function to write into if it likes.
        return results.in_pandas(batch.names, [column.copy() for column in batch.columns])

    def convert(data: Any, schema: Any, **options: Any) -> Any:
        can_be = options.get("assign_cols_by_name") and not options.get("prefers_large_types")
        batch = results.batch(data, schema) if can_be else None
        return PandasToArrowConversion.convert(data, schema, **options) if batch is None else batch

    return {
        "ArrowBatchTransformer": type("ToPandas", (ArrowBatchTransformer,), {"to_pandas": staticmethod(to_pandas)}),
        "PandasToArrowConversion": type("FromPandas", (PandasToArrowConversion,), {"convert": staticmethod(convert)}),
    }


def verification() -> dict[str, Any]:
    """Spark's look at the columns of a frame that a function made, by its name in the worker.

    It is about their names alone, which are most often those of the frame before.
    """
    from pyspark.worker import verify_pandas_result

    seen: list[Any] | None = None

    def verify(frame: Any, *args: Any, **options: Any) -> None:
        nonlocal seen
        names = frame.columns.tolist() if hasattr(frame, "columns") else None
        if names is None or names != seen:
            verify_pandas_result(frame, *args, **options)
            seen = names

    return {"verify_pandas_result": verify}


class PlainResults:
    """What functions take of plain columns, and what they made, where it is plain and of the types they declare."""

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
        self._array, self._series, self._frame = np.ndarray, pd.Series, pd.DataFrame

    def in_pandas(self, names: Sequence[str], columns: Sequence[Any]) -> list[Any]:
        """What such functions take of plain columns."""
        return [self._series(column, name=name, copy=False) for name, column in zip(names, columns, strict=True)]

    def batch(self, data: Any, schema: Any) -> PlainBatch | None:
        """Results of functions, or None where one is not plain."""
        if not isinstance(data, list) or not all(type(each) is self._series for each in data):
            return None
        return self._of_columns([each.values for each in data], schema)

    def _of_columns(self, made: Sequence[Any], declared: Any) -> PlainBatch | None:
        columns = [self._column(each, field.dataType) for each, field in zip(made, declared.fields, strict=True)]
        return None if not columns or any(column is None for column in columns) else PlainBatch(declared.names, columns)

    def _column(self, made: Any, declared: Any) -> Any:
        expected = self._made_of.get(type(declared))
        if expected is None or type(made) is not self._array or made.dtype != expected:
            return None
        # A copy: what the function does with its own afterwards does not change what it has given.
        values = made.copy()
        return values if not expected.hasobject or are_texts(values) else None


class PlainFrames(PlainResults):
    """The same for functions that make frames."""

    def __init__(self) -> None:
        super().__init__()
        self._frames = frame_maker()

    def in_pandas(self, names: Sequence[str], columns: Sequence[Any]) -> list[Any]:
        """One frame of all of them."""
        return [self._frames.frame(names, columns)]

    def batch(self, data: Any, schema: Any) -> PlainBatch | None:
        """The columns of a frame."""
        if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], self._frame):
            return None
        frame, declared = data[0], schema.fields[0].dataType
        if not all(field.nullable for field in declared.fields):
            return None  # Spark's way finds nulls where there must be none
        columns = self._frames.columns(frame)
        if len(columns) != len(frame.columns) or not all(name in columns for name in declared.names):
            return None
        return self._of_columns([columns[name] for name in declared.names], declared)
