"""Converts plain columns to pandas and back."""

from collections.abc import Sequence
from typing import Any

from tailrace.worker.frame_builder import fastest_frame_builder
from tailrace.worker.plain import PlainBatch, are_valid_strings


def pandas_conversions(converter: "SeriesConverter") -> dict[str, Any]:
    """Return replacements for Spark's conversions, by their names in its worker, that take plain batches, too."""
    from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion

    def to_pandas(batch: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(batch, PlainBatch):
            return ArrowBatchTransformer.to_pandas(batch, *args, **options)
        if options.get("prefer_int_ext_dtype"):
            return ArrowBatchTransformer.to_pandas(batch.to_arrow(nan_is_null=False), *args, **options)
        # Copied, because the function may write into its input.
        return converter.to_pandas(batch.names, [column.copy() for column in batch.columns])

    def convert(data: Any, schema: Any, **options: Any) -> Any:
        may_be_plain = options.get("assign_cols_by_name") and not options.get("prefers_large_types")
        batch = converter.from_pandas(data, schema) if may_be_plain else None
        return PandasToArrowConversion.convert(data, schema, **options) if batch is None else batch

    return {
        "ArrowBatchTransformer": type("ToPandas", (ArrowBatchTransformer,), {"to_pandas": staticmethod(to_pandas)}),
        "PandasToArrowConversion": type("FromPandas", (PandasToArrowConversion,), {"convert": staticmethod(convert)}),
    }


def cached_verification() -> dict[str, Any]:
    """Return a replacement for Spark's check of result frames, by its name in the worker.

    Spark checks only the column names, so frames with the names of the last one that passed need no check.
    """
    from pyspark.worker import verify_pandas_result

    verified: list[Any] | None = None

    def verify(frame: Any, *args: Any, **options: Any) -> None:
        nonlocal verified
        names = frame.columns.tolist() if hasattr(frame, "columns") else None
        if names is None or names != verified:
            verify_pandas_result(frame, *args, **options)
            verified = names

    return {"verify_pandas_result": verify}


class SeriesConverter:
    """Converts plain columns to series, and series of the declared types back."""

    def __init__(self) -> None:
        import numpy as np
        import pandas as pd
        from pyspark.sql import types

        self._dtypes: dict[Any, Any] = {
            types.DoubleType: np.dtype("float64"),
            types.FloatType: np.dtype("float32"),
            types.LongType: np.dtype("int64"),
            types.IntegerType: np.dtype("int32"),
            types.ShortType: np.dtype("int16"),
            types.ByteType: np.dtype("int8"),
            types.BooleanType: np.dtype("bool"),
            types.StringType: np.dtype("object"),
        }
        """The numpy dtype of each Spark type that can be plain."""
        self._array, self._series, self._frame = np.ndarray, pd.Series, pd.DataFrame

    def to_pandas(self, names: Sequence[str], columns: Sequence[Any]) -> list[Any]:
        """Return the arguments of a function for plain columns."""
        return [self._series(column, name=name, copy=False) for name, column in zip(names, columns, strict=True)]

    def from_pandas(self, data: Any, schema: Any) -> PlainBatch | None:
        """Return the results of functions as a plain batch; None if one of them is not plain."""
        if not isinstance(data, list) or not all(type(each) is self._series for each in data):
            return None
        return self._batch([each.values for each in data], schema)

    def _batch(self, results: Sequence[Any], declared: Any) -> PlainBatch | None:
        columns = [self._column(each, field.dataType) for each, field in zip(results, declared.fields, strict=True)]
        return None if not columns or any(column is None for column in columns) else PlainBatch(declared.names, columns)

    def _column(self, result: Any, declared: Any) -> Any:
        expected = self._dtypes.get(type(declared))
        if expected is None or type(result) is not self._array or result.dtype != expected:
            return None
        # Copied, because the function may write into its result later.
        values = result.copy()
        return values if not expected.hasobject or are_valid_strings(values) else None


class FrameConverter(SeriesConverter):
    """Converts plain columns to a frame, and a frame back."""

    def __init__(self) -> None:
        super().__init__()
        self._builder = fastest_frame_builder()

    def to_pandas(self, names: Sequence[str], columns: Sequence[Any]) -> list[Any]:
        """Return one frame of all columns."""
        return [self._builder.frame(names, columns)]

    def from_pandas(self, data: Any, schema: Any) -> PlainBatch | None:
        """Return the columns of a frame as a plain batch; None if one of them is not plain."""
        if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], self._frame):
            return None
        frame, declared = data[0], schema.fields[0].dataType
        if not all(field.nullable for field in declared.fields):
            return None  # Spark's conversion checks for nulls
        columns = self._builder.columns(frame)
        if len(columns) != len(frame.columns) or not all(name in columns for name in declared.names):
            return None
        return self._batch([columns[name] for name in declared.names], declared)
