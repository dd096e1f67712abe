"""The short way between Arrow and pandas gives what Spark's own conversions give, or leaves it to them."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType, TimestampType
from pyspark.util import PythonEvalType

from tailrace.functions.plain import PlainColumns, with_short_ways

PLAIN = {
    "double": pa.array([1.5, float("nan"), -0.0]),
    "float": pa.array([1.5, 2.5, 3.5], pa.float32()),
    "long": pa.array([1, 2, 2**62]),
    "integer": pa.array([1, 2, 3], pa.int32()),
    "short": pa.array([1, 2, 3], pa.int16()),
    "byte": pa.array([1, 2, 3], pa.int8()),
    "boolean": pa.array([True, False, True]),
    "text": pa.array(["a", None, "ü"]),
}
NOT_PLAIN = {
    "double with nulls": pa.array([1.5, None]),
    "long with nulls": pa.array([1, None]),
    "timestamp": pa.array([0, 1], pa.timestamp("us", "UTC")),
    "list": pa.array([[1], [2]]),
    "binary": pa.array([b"a", b"b"]),
    "struct with nulls": pa.array([{"a": 1}, None]),
    "struct of nulls": pa.array([{"a": 1}, {"a": None}]),
}


def sparks(batch: pa.RecordBatch) -> list[Any]:
    return list(ArrowBatchTransformer.to_pandas(batch, timezone="UTC", struct_in_pandas="dict", df_for_struct=True))


@pytest.mark.parametrize("name", PLAIN)
def test_plain_columns_are_as_spark_makes_them(name: str) -> None:
    batch = pa.RecordBatch.from_arrays([PLAIN[name]], ["a"])
    for each in (batch, batch.slice(1), batch.slice(0, 0)):
        made = PlainColumns().to_pandas(each)
        assert made is not None
        pd.testing.assert_series_equal(made[0], sparks(each)[0])


def test_a_struct_of_plain_columns_is_the_same_frame() -> None:
    struct = pa.StructArray.from_arrays(list(PLAIN.values()), list(PLAIN))
    batch = pa.RecordBatch.from_arrays([struct], ["_0"])
    for each in (batch, batch.slice(1), batch.slice(0, 0)):
        made = PlainColumns().to_pandas(each)
        assert made is not None
        pd.testing.assert_frame_equal(made[0], sparks(each)[0])
    made[0]["long"] = 1  # the function may write into it


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_spark(name: str) -> None:
    assert PlainColumns().to_pandas(pa.RecordBatch.from_arrays([NOT_PLAIN[name]], ["a"])) is None


FRAME = StructType().add("n", LongType()).add("x", DoubleType()).add("w", StringType())
MADE: dict[str, tuple[Any, Any]] = {
    "double": (pd.Series([1.0, float("nan")]), DoubleType()),
    "integer": (pd.Series([1, 2], dtype="int32"), IntegerType()),
    "text": (pd.Series(["a", None, float("nan")]), StringType()),
    "no rows": (pd.Series([], dtype="float64"), DoubleType()),
    "another index": (pd.Series([1.0, 2.0], index=[7, 3]), DoubleType()),
    "frame": (pd.DataFrame({"w": ["a", None], "x": [0.5, np.nan], "n": [1, 2]}), FRAME),
    "frame with more": (pd.DataFrame({"w": ["a"], "x": [0.5], "n": [1], "more": [2]}), FRAME),
}


@pytest.mark.parametrize("name", MADE)
def test_plain_results_are_as_spark_makes_them(name: str) -> None:
    made, declared = MADE[name]
    schema = StructType().add("_0", declared)
    expected = PandasToArrowConversion.convert(
        [made], schema, timezone="UTC", safecheck=True, arrow_cast=True, assign_cols_by_name=True
    )
    found = PlainColumns().from_pandas([made], schema)
    assert found is not None
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema.equals(expected.schema)


@pytest.mark.parametrize(
    ("made", "declared"),
    [
        (pd.Series([1, 2]), DoubleType()),
        (pd.Series([1.0, None]), LongType()),
        (pd.Series([1, 2], dtype="Int64"), LongType()),
        (pd.Series([1, 2], dtype=object), StringType()),
        (pd.Series(pd.to_datetime(["2026-11-16"])), TimestampType()),
        ([1.0, 2.0], DoubleType()),
        (pd.DataFrame({"n": [1], "x": [0.5]}), FRAME),
        (pd.DataFrame({"n": ["1"], "x": [0.5], "w": ["a"]}), FRAME),
    ],
)
def test_other_results_are_left_to_spark(made: Any, declared: Any) -> None:
    assert PlainColumns().from_pandas([made], StructType().add("_0", declared)) is None


def test_what_does_not_convert_as_expected_is_left_alone() -> None:
    assert with_short_ways(json.dumps, PythonEvalType.SQL_SCALAR_PANDAS_UDF) is json.dumps
    assert with_short_ways(sparks, PythonEvalType.SQL_SCALAR_ARROW_UDF) is sparks
