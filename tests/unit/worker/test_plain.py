"""Plain columns give the same results as Spark's own conversions, or use them."""

import functools
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructType, TimestampType
from pyspark.util import PythonEvalType

from tailrace.worker.fast_path import with_fast_path, with_names_replaced
from tailrace.worker.pandas_conversion import FrameConverter, SeriesConverter
from tailrace.worker.plain import PlainBatch, PlainFrame, PlainReader, PlainValues, concat_batches, to_arrow
from tailrace.worker.value_conversion import PyArrowProxy

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


def plain_batch(columns: dict[str, pa.Array]) -> PlainBatch:
    """Return a plain batch as the engine sends it."""
    batch = pa.RecordBatch.from_pydict(columns)
    message = [
        column.to_pylist() if column.type == pa.string() else column.to_numpy(zero_copy_only=False).tobytes()
        for column in batch.columns
    ]
    return PlainReader(batch.schema).batch(message)


def fast_path(batch: Any, kind: int, **options: Any) -> list[Any]:
    """Return the arguments that a function of Spark's worker gets for a plain batch."""

    def evaluate(_: int, batches: Any) -> Any:
        assert PandasToArrowConversion is not original, "the other conversion is replaced as well"
        return [ArrowBatchTransformer.to_pandas(each, timezone="UTC", **options) for each in batches]

    original = PandasToArrowConversion
    (result,) = with_fast_path(evaluate, kind)(0, [batch])
    return list(result)


@pytest.mark.parametrize("prefer_int_ext_dtype", [False, True])
@pytest.mark.parametrize("name", PLAIN)
def test_plain_columns_are_converted_like_sparks(name: str, prefer_int_ext_dtype: bool) -> None:
    options = {"df_for_struct": True, "prefer_int_ext_dtype": prefer_int_ext_dtype}
    batch, arrow = plain_batch({"a": PLAIN[name]}), pa.RecordBatch.from_arrays([PLAIN[name]], ["a"])
    for each, same in ((batch, arrow), (batch.slice(1), arrow.slice(1)), (batch.select([0]), arrow)):
        (result,) = fast_path(each, PythonEvalType.SQL_SCALAR_PANDAS_UDF, **options)
        pd.testing.assert_series_equal(result, ArrowBatchTransformer.to_pandas(same, timezone="UTC", **options)[0])


@pytest.mark.parametrize("prefer_int_ext_dtype", [False, True])
def test_a_frame_of_plain_columns_is_equal_to_sparks(prefer_int_ext_dtype: bool) -> None:
    options = {"df_for_struct": True, "prefer_int_ext_dtype": prefer_int_ext_dtype}
    batch = plain_batch(PLAIN)
    struct = ArrowBatchTransformer.wrap_struct(pa.RecordBatch.from_pydict(PLAIN))
    (result,) = fast_path(PlainFrame(batch.names, batch.columns), PythonEvalType.SQL_MAP_PANDAS_ITER_UDF, **options)
    pd.testing.assert_frame_equal(result, ArrowBatchTransformer.to_pandas(struct, timezone="UTC", **options)[0])
    result["long"] = 1  # the function may write into it
    result.loc[0, "double"] = 7.0
    assert batch.column(0)[0] == 1.5


FRAME = StructType().add("n", LongType()).add("x", DoubleType()).add("w", StringType())
RESULTS: dict[str, tuple[Any, Any]] = {
    "double": (pd.Series([1.0, float("nan")]), DoubleType()),
    "integer": (pd.Series([1, 2], dtype="int32"), IntegerType()),
    "text": (pd.Series(["a", None, "ü"]), StringType()),
    "no rows": (pd.Series([], dtype="float64"), DoubleType()),
    "another index": (pd.Series([1.0, 2.0], index=[7, 3]), DoubleType()),
    "frame": (pd.DataFrame({"w": ["a", None], "x": [0.5, np.nan], "n": [1, 2]}), FRAME),
    "frame with more": (pd.DataFrame({"w": ["a"], "x": [0.5], "n": [1], "more": [2]}), FRAME),
}


def plain_results(result: Any, declared: Any) -> PlainBatch | None:
    results = FrameConverter() if isinstance(declared, StructType) else SeriesConverter()
    return results.from_pandas([result], StructType().add("_0", declared))


@pytest.mark.parametrize("name", RESULTS)
def test_plain_results_are_converted_like_sparks(name: str) -> None:
    result, declared = RESULTS[name]
    expected = PandasToArrowConversion.convert(
        [result], StructType().add("_0", declared), timezone="UTC", safecheck=True, arrow_cast=True,
        assign_cols_by_name=True,
    )  # fmt: skip
    if isinstance(declared, StructType):
        expected = ArrowBatchTransformer.flatten_struct(expected)
    actual = plain_results(result, declared)
    assert actual is not None
    assert to_arrow(actual, nan_is_null=True).to_pylist() == expected.to_pylist()
    assert to_arrow(actual, nan_is_null=True).schema.equals(expected.schema)


@pytest.mark.parametrize(
    ("result", "declared"),
    [
        (pd.Series([1, 2]), DoubleType()),
        (pd.Series([1.0, None]), LongType()),
        (pd.Series([1, 2], dtype="Int64"), LongType()),
        (pd.Series([1, 2], dtype=object), StringType()),
        (pd.Series(["a", float("nan")]), StringType()),
        (pd.Series(["a", "\ud83d"]), StringType()),
        (pd.Series(pd.to_datetime(["2026-11-16"])), TimestampType()),
        ([1.0, 2.0], DoubleType()),
        (pd.DataFrame({"n": [1], "x": [0.5]}), FRAME),
        (pd.DataFrame({"n": ["1"], "x": [0.5], "w": ["a"]}), FRAME),
    ],
)
def test_other_results_are_not_plain(result: Any, declared: Any) -> None:
    assert plain_results(result, declared) is None


VALUES: dict[str, tuple[list[Any], pa.DataType]] = {
    "double": ([1.5, None, float("inf")], pa.float64()),
    "long": ([2**63 - 1, -(2**63), None], pa.int64()),
    "byte": ([127, -128], pa.int8()),
    "boolean": ([True, None], pa.bool_()),
    "text": (["a", None, "ü"], pa.string()),
    "no rows": ([], pa.float64()),
}


@pytest.mark.parametrize("name", VALUES)
def test_plain_values_stay_python_values(name: str) -> None:
    values, kind = VALUES[name]
    arrow = PyArrowProxy()
    batch = arrow.RecordBatch.from_arrays([arrow.array(values, type=kind)], ["_0"])
    assert isinstance(batch, PlainValues)
    assert batch.column(0) is values
    assert to_arrow(batch, nan_is_null=True) == pa.RecordBatch.from_arrays([pa.array(values, type=kind)], ["_0"])
    assert concat_batches([batch, batch]).column(0).to_pylist() == values + values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2.5], pa.float64()),
        ([np.float64(1.5)], pa.float64()),
        ([0.5], pa.float32()),
        (["a"], pa.large_string()),
        ([1, 2], None),
    ],
)
def test_other_values_become_arrow(values: list[Any], kind: Any) -> None:
    arrow = PyArrowProxy()
    batch = arrow.RecordBatch.from_arrays([arrow.array(values, type=kind)], ["_0"])
    assert batch == pa.RecordBatch.from_arrays([pa.array(values, type=kind)], ["_0"])


@pytest.mark.parametrize(
    ("values", "kind"),
    [([128], pa.int8()), (["\ud83d"], pa.string()), ([2**63], pa.int64()), ([True], pa.int8())],
)
def test_values_of_another_type_fail_as_in_arrow(values: list[Any], kind: Any) -> None:
    with pytest.raises((pa.ArrowException, OverflowError, UnicodeEncodeError)) as expected:
        pa.array(values, type=kind)
    with pytest.raises(type(expected.value)):
        PyArrowProxy().array(values, type=kind)


def test_nan_from_a_python_function_is_not_null() -> None:
    result = PyArrowProxy().array([float("nan")], type=pa.float64())
    assert to_arrow(result, nan_is_null=True).column(0).null_count == 0


def test_rows_without_columns_are_not_lost() -> None:
    bare = pa.RecordBatch.from_arrays([pa.array([1, 2])], ["a"]).select([])
    both = concat_batches([bare, bare])
    assert (both.num_rows, both.num_columns) == (4, 0)


def test_batches_keep_their_encoding_and_schema_when_concatenated() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    arrow = pa.RecordBatch.from_arrays([pa.array([3])], schema=schema)
    plain = plain_batch({"a": pa.array([1, 2])})
    assert concat_batches([plain, plain]).column(0).tolist() == [1, 2, 1, 2]
    mixed = concat_batches([plain, arrow])
    assert mixed.schema == schema
    assert mixed.column(0).to_pylist() == [1, 2, 3]
    assert concat_batches([arrow, arrow]).schema == schema


def test_a_name_of_the_module_is_replaced() -> None:
    def outer() -> list[str]:
        return [secret_of(each) for each in "ab"]

    result = with_names_replaced(outer, {"secret_of": str.upper})
    assert result is not None
    assert result() == ["A", "B"]
    assert with_names_replaced(outer, {"len": len}) is None
    assert with_names_replaced(functools.partial(outer), {"secret_of": len}) is None


def test_a_name_of_the_closure_is_replaced() -> None:
    around, other = "a", "b"

    def inner(_: int, batches: Any) -> Any:
        return [secret_of(around + other + each) for each in batches]

    result = with_names_replaced(inner, {"secret_of": str.upper}, {"around": "x"})
    assert result is not None
    assert result(0, ["c"]) == ["XBC"]
    assert inner(0, ["c"]) == ["abc"]
    assert with_names_replaced(inner, {}, {"result": "x"}) is None


def secret_of(text: str) -> str:
    return text


def test_an_unknown_function_of_sparks_worker_gets_arrow() -> None:
    def rows(_: int, batches: Any) -> list[Any]:
        return [batch.to_pylist() for batch in batches]

    batch = plain_batch({"a": pa.array([1.5, float("nan")])})
    ((first, second),) = with_fast_path(functools.partial(rows), PythonEvalType.SQL_SCALAR_PANDAS_UDF)(0, [batch])
    assert first == {"a": 1.5}
    assert second["a"] != second["a"]  # NaN from the engine is not null
    assert with_fast_path(rows, PythonEvalType.SQL_SCALAR_ARROW_UDF) is rows
