"""Every kind of Python function in PySpark, built from one function on a value."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

Frames = Callable[[DataFrame], DataFrame]
COLUMN_KINDS = ("udf", "udf-arrow", "pandas", "pandas-iter", "arrow", "arrow-iter")
MAP_KINDS = ("map-pandas", "map-arrow")
KINDS = (*COLUMN_KINDS, *MAP_KINDS)


def column(kind: str, each: Callable[[Any], Any], returns: str) -> Callable[[Any], Column]:
    """Return a function on columns that applies a function to each value."""

    def series(values: pd.Series) -> pd.Series:
        return values.map(each)

    def iterated(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for values in batches:
            yield values.map(each)

    def array(values: pa.Array) -> pa.Array:
        return pa.array([each(value) for value in values.to_pylist()])

    def arrays(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for values in batches:
            yield array(values)

    functions: dict[str, Callable[[], Any]] = {
        "udf": lambda: F.udf(each, returns, useArrow=False),
        "udf-arrow": lambda: F.udf(each, returns, useArrow=True),
        "pandas": lambda: F.pandas_udf(series, returns),
        "pandas-iter": lambda: F.pandas_udf(iterated, returns),
        "arrow": lambda: F.arrow_udf(array, returns),
        "arrow-iter": lambda: F.arrow_udf(arrays, returns),
    }
    return functions[kind]()


def doubling(kind: str, each: Callable[[Any], Any]) -> Frames:
    """Return a DataFrame function that computes ``b`` from ``a``."""

    def in_pandas(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield frame.assign(b=frame["a"].map(each))

    def in_arrow(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = pa.array([each(value) for value in batch.column("a").to_pylist()], pa.int64())
            yield pa.RecordBatch.from_arrays([batch.column("a"), results], ["a", "b"])

    if kind == "map-pandas":
        return lambda rows: rows.mapInPandas(in_pandas, "a long, b long")
    if kind == "map-arrow":
        return lambda rows: rows.mapInArrow(in_arrow, "a long, b long")
    return lambda rows: rows.withColumn("b", column(kind, each, "long")("a"))
