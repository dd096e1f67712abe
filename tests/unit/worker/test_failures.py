"""Where a function failed, when none of its own lines raised the exception."""

import functools
import json
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.types import LongType, StructType
from pyspark.util import PythonEvalType

from tailrace.conditions.failures import translate_failure
from tailrace.worker.failures import describe_failure
from tailrace.worker.messages import END_OF_INPUT

from .worker import SENT, batch, in_arrow, load_worker, spec_of


def one_less(values: pd.Series) -> pd.Series:
    return values[:-1]


def one_less_of_many(values: pd.Series) -> pd.Series:
    return values[:-1] if len(values) > 1 else values


def streamed(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for values in batches:
        yield values[:-1]


def misnamed(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in batches:
        yield frame.rename(columns={"_0": "other"})


def wrong_length(values: Any) -> Any:
    return values.slice(1)


def place_of(function: Callable[..., Any]) -> str:
    return f"(test_failures.py line {function.__code__.co_firstlineno})"


CASES = [
    ("columns", PythonEvalType.SQL_SCALAR_PANDAS_UDF, one_less, LongType()),
    ("columns", PythonEvalType.SQL_SCALAR_ARROW_UDF, wrong_length, LongType()),
    ("stream", PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, streamed, LongType()),
]


@pytest.mark.parametrize(("call_with", "kind", "function", "returns"), CASES)
def test_a_result_of_the_wrong_length_names_the_function(
    call_with: str, kind: int, function: Any, returns: Any
) -> None:
    run = load_worker(spec_of(call_with, kind, function, returns, retries=0, schema=SENT))
    failures = [
        run(message)[1]
        for message in (in_arrow(batch(1, 2)), END_OF_INPUT)
        if message != END_OF_INPUT or call_with == "stream"
    ]
    (failure,) = [json.loads(next(iter(each.values()))) for each in failures if each]
    assert "must match the number of input rows" in failure["error"]
    assert failure["error"].endswith(place_of(function))
    assert f"in {function.__name__}" in failure["traceback"]
    assert "During handling" not in failure["traceback"]
    said = translate_failure("q", f"Python function f failed: {failure['error']}\n{failure['traceback']}")
    assert f"test_failures.py line {function.__code__.co_firstlineno} in {function.__name__}" in said.what


def test_a_frame_of_the_wrong_columns_names_the_function() -> None:
    kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
    run = load_worker(spec_of("frames", kind, misnamed, StructType().add("_0", LongType()), retries=0, schema=SENT))
    failures = run(in_arrow(batch(1, 2)))[1]
    assert json.loads(failures[0])["error"].endswith(place_of(misnamed))


def test_a_failure_that_no_single_row_shows_names_the_function() -> None:
    kind = PythonEvalType.SQL_SCALAR_PANDAS_UDF
    run = load_worker(spec_of("columns", kind, one_less_of_many, LongType(), schema=SENT, must_fail=True))
    with pytest.raises(Exception, match="must match") as raised:
        run(in_arrow(batch(1, 2)))
    trace = "".join(traceback.format_exception(raised.value))
    what = translate_failure("q", f"PythonException: {trace}").what
    line = one_less_of_many.__code__.co_firstlineno
    assert f"test_failures.py line {line} in one_less_of_many: " in what
    assert "tailrace" not in what


class Called:
    def __call__(self, value: int) -> int:
        return value


def decorated() -> Callable[[int], int]:
    @functools.wraps(one_less)
    def wrapper(value: int) -> int:
        return value

    return wrapper


@pytest.mark.parametrize(
    ("function", "defined"),
    [
        (functools.partial(one_less), one_less),
        (Called(), Called.__call__),
        (Called().__call__, Called.__call__),
        (decorated(), one_less),
    ],
)
def test_any_callable_has_a_line(function: Any, defined: Any) -> None:
    error = json.loads(describe_failure("f", function, ValueError("wrong")))["error"]
    assert error == f"ValueError: wrong {place_of(defined)}"


@pytest.mark.parametrize("function", [None, len, print])
def test_an_unknown_line_is_omitted(function: Any) -> None:
    assert json.loads(describe_failure("f", function, ValueError("wrong")))["error"] == "ValueError: wrong"
