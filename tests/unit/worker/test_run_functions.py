"""The worker code, called like Spark's worker calls it, without a JVM."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.accumulators import Accumulator, AddingAccumulatorParam, _accumulatorRegistry
from pyspark.sql.types import ArrayType, LongType, StringType, StructType
from pyspark.util import PythonEvalType

from tailrace.worker import pickled_worker
from tailrace.worker.failures import FunctionFailed

from .worker import SENT, BothEncodings, batch, load_worker, picky, replies, spec_of

_NUMBERS = itertools.count(1)


def test_it_can_be_loaded_without_tailrace() -> None:
    program = (
        "import pickle, sys\n"
        "sys.modules['tailrace'] = None\n"  # importing it would fail
        "worker = pickle.loads(sys.stdin.buffer.read())\n"
        "print(worker.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickled_worker(), capture_output=True, check=True)
    assert done.stdout.strip() == b"worker_function"


class TestRows:
    def test_results_of_a_batch(self) -> None:
        run = load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))
        columns, failures, times = run(((1,), (2,)))
        assert columns == [[2, 4]]
        assert failures is None
        assert len(times) == 1
        assert times[0] > 0

    def test_an_exception_is_the_failure_of_its_row(self) -> None:
        run = load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))
        columns, failures, _ = run(((1,), (7,), (3,)))
        assert columns == [[2, None, 6]]
        assert list(failures) == [1]
        failure = json.loads(failures[1])
        assert failure["function"] == "f"
        assert failure["error"].startswith("ValueError: not seven (worker.py line")
        assert "in picky" in failure["traceback"]
        assert "pyspark" not in failure["traceback"]

    def test_a_result_that_cannot_be_sent_is_the_failure_of_its_row(self) -> None:
        def endless(value: int) -> Any:
            return (each for each in [value]) if value == 7 else [value]

        run = load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, endless, ArrayType(LongType())))
        columns, failures, _ = run(((1,), (7,), (3,)))
        assert columns == [[[1], None, [3]]]
        assert "generator" in json.loads(failures[1])["error"]

    def test_the_line_is_the_users_if_a_library_raises(self) -> None:
        def parsed(text: str) -> int:
            return int(json.loads(text)["n"])

        run = load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, parsed, LongType()))
        _, failures, _ = run((("{",),))
        failure = json.loads(failures[0])
        assert "(test_run_functions.py line" in failure["error"]
        assert "decoder.py" in failure["traceback"]

    def test_a_function_in_two_places_is_two_objects(self) -> None:
        class Counter:
            def __init__(self) -> None:
                self.calls = 0

            def __call__(self, value: int) -> int:
                self.calls += 1
                return self.calls

        spec = spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, Counter(), LongType())
        spec["functions"] *= 2
        columns, _, _ = load_worker(spec)(((5,), (6,)))
        assert columns == [[1, 2], [1, 2]]

    def test_functions_share_the_accumulator_of_their_task(self) -> None:
        counter = Accumulator(next(_NUMBERS), 0, AddingAccumulatorParam(0))

        def one(value: int) -> int:
            counter.add(1)
            return value

        def hundred(value: int) -> int:
            counter.add(100)
            return value

        spec = spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, one, LongType())
        spec["functions"] += spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, hundred, LongType())["functions"]
        for _ in range(2):
            _accumulatorRegistry.clear()  # as Spark's worker does for every task
            load_worker(spec)(((5,), (6,)))
            assert [each._value for each in _accumulatorRegistry.values()] == [202]

    def test_a_memory_error_is_not_the_failure_of_a_row(self) -> None:
        def hungry(_: int) -> int:
            raise MemoryError

        with pytest.raises(MemoryError):
            load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, hungry, LongType()))(((1,),))


def test_a_ping_calls_no_function() -> None:
    assert load_worker(spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))(()) is None
    run = load_worker(spec_of("columns", PythonEvalType.SQL_SCALAR_ARROW_UDF, picky, LongType(), schema=SENT))
    assert run(b"") is None


class TestColumns(BothEncodings):
    def run(
        self, function: Callable[..., Any], kind: int, *batches: pa.RecordBatch, must_fail: bool = False
    ) -> list[Any]:
        run = load_worker(spec_of("columns", kind, function, LongType(), schema=SENT, must_fail=must_fail))
        messages = [self.message(each) for each in batches]
        return [([row["_0"] for row in result], failures) for result, failures, _ in replies(run, messages)]

    def test_pandas(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values * 2

        actual = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), batch(3))
        assert actual == [([2, 4], {}), ([6], {})]

    def test_single_rows(self) -> None:
        actual = self.run(picky, PythonEvalType.SQL_ARROW_BATCHED_UDF, batch(1, 7, 3), batch(4))
        assert [values for values, _ in actual] == [[2, None, 6], [8]]
        assert [[*failures] for _, failures in actual] == [[1], []]

    def test_nulls_and_results_of_another_type_use_sparks_conversion(self) -> None:
        def increased(values: pd.Series) -> pd.Series:
            return values.astype("float64") + 1.0  # declared as whole numbers

        nulls = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int64())], ["_0"])
        actual = self.run(increased, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), nulls, batch(3))
        assert actual == [([2, 3], {}), ([2, None], {}), ([4], {})]

    def test_a_function_may_write_into_its_input(self) -> None:
        def careless(values: pd.Series) -> pd.Series:
            values[:] = values * 2
            if (values == 14).any():
                raise ValueError("not seven")
            return values

        actual = self.run(careless, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 7, 3))
        assert [values for values, _ in actual] == [[2, None, 6]]

    def test_a_function_may_reuse_its_result(self) -> None:
        buffer = np.zeros(8, dtype="int64")

        def in_place(values: pd.Series) -> pd.Series:
            if (values == 7).any():
                raise ValueError("not seven")
            result = buffer[: len(values)]
            result[:] = values * 2
            return pd.Series(result)

        actual = self.run(in_place, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 7, 3))
        assert [values for values, _ in actual] == [[2, None, 6]]

    def test_several_functions_get_the_same_input(self) -> None:
        def careless(values: pd.Series) -> pd.Series:
            values[:] = 0
            return values

        def same(values: pd.Series) -> pd.Series:
            return values.where(values > 1)  # else null

        spec = spec_of("columns", PythonEvalType.SQL_SCALAR_PANDAS_UDF, careless, LongType(), schema=SENT)
        other = spec_of("columns", PythonEvalType.SQL_SCALAR_PANDAS_UDF, same, LongType())
        spec["functions"] += other["functions"]
        results, failures, times, kind, _ = load_worker(spec)(self.message(batch(1, 2)))
        read = pa.ipc.read_record_batch(pa.py_buffer(results), pa.ipc.read_schema(pa.py_buffer(kind)))
        assert read.to_pydict() == {"_0": [0, 0], "_1": [None, 2]}
        assert failures is None
        assert len(times) == 2

    def test_only_the_rows_that_fail_fail(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values.map(picky)

        actual = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(7), batch(1, 7, 3), batch(4))
        assert [values for values, _ in actual] == [[None], [2, None, 6], [8]]
        assert [[*failures] for _, failures in actual] == [[0], [1], []]

    def test_an_exception_that_no_single_row_reproduces_ends_the_worker_only_with_must_fail(self) -> None:
        def alone(values: pd.Series) -> pd.Series:
            if len(values) > 1:
                raise OSError("too many")
            return values

        kind = PythonEvalType.SQL_SCALAR_PANDAS_UDF
        assert self.run(alone, kind, batch(1, 2)) == [([1, 2], {})]
        with pytest.raises(Exception, match="too many") as raised:
            self.run(alone, kind, batch(1, 2), must_fail=True)
        assert type(raised.value).__name__ == FunctionFailed.__name__


def test_a_function_is_loaded_once_per_process() -> None:
    loaded: list[int] = []

    class Model:
        def __setstate__(self, state: dict[str, Any]) -> None:
            loaded.append(1)

        def __getstate__(self) -> dict[str, Any]:
            return {"some": "state"}

        def __call__(self, value: int) -> int:
            return value

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    before = spec_of("rows", PythonEvalType.SQL_BATCHED_UDF, Model(), LongType())
    first, second = load_worker(before), load_worker(before)
    assert first(((1,),))[0] == second(((1,),))[0] == [[1]]
    from pyspark import worker

    kept = vars(worker)["_tailrace_functions"]
    assert sum(type(function).__name__ == "Model" for function, _ in kept.values()) == 1


def test_several_plain_columns() -> None:
    def frames(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in batches:
            frame["n"] += frame["w"].str.len().fillna(0).astype("int64")
            yield frame[["w", "n"]]

    output = StructType().add("w", StringType()).add("n", LongType())
    schema = pa.schema([("n", pa.int64()), ("w", pa.string())]).serialize().to_pybytes()
    kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
    run = load_worker(spec_of("frames", kind, frames, output, retries=0, schema=schema))
    ((result, failures, _),) = replies(run, [(np.array([1, 2, 3]).tobytes(), ["ab", None, "ü"])], output.names)
    assert result == [{"w": "ab", "n": 3}, {"w": None, "n": 2}, {"w": "ü", "n": 4}]
    assert failures == {}
