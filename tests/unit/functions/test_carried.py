"""The Python half of the engine, as Spark's worker calls it; no JVM is needed for that."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import DataType, LongType, StringType, StructType
from pyspark.util import PythonEvalType

from tailrace.functions import pickled_half
from tailrace.functions.failures import FunctionFailed

CONF = {"spark.sql.session.timeZone": "UTC"}
SCHEMA = pa.schema([("_0", pa.int64())])


def told(way: str, kind: int, function: Callable[..., Any], returns: DataType, **more: Any) -> dict[str, Any]:
    called = {
        "name": "f",
        "commands": [cloudpickle.dumps((function, returns))],
        "args": [0],
        "kwargs": {},
        "id": 1,
    }
    return {"way": way, "kind": kind, "conf": CONF, "functions": [called], "inputs": ['"long"'], **more}


def half(description: dict[str, Any]) -> Callable[..., Any]:
    made, _ = pickle.loads(pickled_half())(description)
    return made  # type: ignore[no-any-return]


def picky(value: int) -> int:
    if value == 7:
        raise ValueError("not seven")
    return value * 2


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["_0"])


def test_it_can_be_loaded_without_tailrace() -> None:
    program = (
        "import pickle, sys\n"
        "sys.modules['tailrace'] = None\n"  # importing it would fail
        "half = pickle.loads(sys.stdin.buffer.read())\n"
        "print(half.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], input=pickled_half(), capture_output=True, check=True)
    assert done.stdout.strip() == b"function"


class TestRows:
    def test_results_of_a_group(self) -> None:
        run = half(told("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))
        columns, failures, spent = run(((1,), (2,)))
        assert columns == [[2, 4]]
        assert failures is None
        assert len(spent) == 1
        assert spent[0] > 0

    def test_an_exception_is_the_answer_of_its_row(self) -> None:
        run = half(told("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))
        columns, failures, _ = run(((1,), (7,), (3,)))
        assert columns == [[2, None, 6]]
        assert list(failures) == [1]
        failure = json.loads(failures[1])
        assert failure["function"] == "f"
        assert failure["error"].startswith("ValueError: not seven (test_carried.py line")
        assert "in picky" in failure["traceback"]
        assert "pyspark" not in failure["traceback"]

    def test_memory_is_not_the_rows_affair(self) -> None:
        def hungry(_: int) -> int:
            raise MemoryError

        with pytest.raises(MemoryError):
            half(told("rows", PythonEvalType.SQL_BATCHED_UDF, hungry, LongType()))(((1,),))


class TestColumns:
    def run(self, function: Callable[..., Any], kind: int, *batches: pa.RecordBatch) -> list[Any]:
        schema = SCHEMA.serialize().to_pybytes()
        run = half(told("columns", kind, function, LongType(), schema=schema))
        answers = [run(each.serialize().to_pybytes()) for each in batches]
        kind_told = next(answer[3] for answer in answers if answer[3] is not None)
        made = pa.ipc.read_schema(pa.py_buffer(kind_told))
        return [
            (pa.ipc.read_record_batch(pa.py_buffer(data), made).column(0).to_pylist(), failures)
            for data, failures, _, _ in answers
        ]

    def test_pandas(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values * 2

        found = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), batch(3))
        assert found == [([2, 4], None), ([6], None)]

    def test_numbers_with_nulls_and_results_of_another_type_go_sparks_way(self) -> None:
        calls: list[int] = []

        def counted(values: pd.Series) -> pd.Series:
            calls.append(len(values))
            return values.astype("float64") + 1.0  # declared as whole numbers

        nulls = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int64())], ["_0"])
        found = self.run(counted, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), nulls, batch(3))
        assert found == [([2, 3], None), ([2, None], None), ([4], None)]

    def test_only_the_rows_that_fail_fail(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values.map(picky)

        found = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(7), batch(1, 7, 3), batch(4))
        assert [values for values, _ in found] == [[None], [2, None, 6], [8]]
        assert [list(failures or ()) for _, failures in found] == [[0], [1], []]

    def test_a_function_is_loaded_once_per_process(self) -> None:
        loaded: list[int] = []

        class Model:
            def __setstate__(self, state: dict[str, Any]) -> None:
                loaded.append(1)

            def __getstate__(self) -> dict[str, Any]:
                return {"some": "state"}

            def __call__(self, value: int) -> int:
                return value

        cloudpickle.register_pickle_by_value(sys.modules[__name__])
        before = told("rows", PythonEvalType.SQL_BATCHED_UDF, Model(), LongType())
        first, second = half(before), half(before)
        assert first(((1,),))[0] == second(((1,),))[0] == [[1]]
        from pyspark import worker

        kept = vars(worker)["_tailrace_functions"]
        assert sum(type(function).__name__ == "Model" for function, _ in kept.values()) == 1


class TestStream:
    def run(self, function: Callable[..., Any], *batches: pa.RecordBatch, alone: int = 0) -> list[tuple[Any, Any]]:
        description = told(
            "stream", PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, function, LongType(), limit_s=60.0, alone=alone
        )
        run = half(description)
        return [
            (value, failure and json.loads(failure)["error"].partition(" (")[0])
            for answer in run(iter(batches))
            for failure, value in zip(answer.column(0).to_pylist(), answer.column(3).to_pylist(), strict=True)
        ]

    def test_it_goes_on_after_an_exception(self) -> None:
        def doubled(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for values in batches:
                yield values.map(picky)

        found = self.run(doubled, batch(1, 2), batch(3, 7, 4), batch(5))
        assert found == [(2, None), (4, None), (6, None), (None, "ValueError: not seven"), (8, None), (10, None)]

    def test_one_that_looks_ahead_fails_on_the_right_row(self) -> None:
        def ahead(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            held: list[pd.Series] = []
            for values in batches:
                held.append(values.map(picky))
                if len(held) == 2:
                    yield held.pop(0)
            yield from held

        found = self.run(ahead, batch(1), batch(7), batch(3), batch(4))
        assert found == [(2, None), (None, "ValueError: not seven"), (6, None), (8, None)]
        assert self.run(ahead, batch(7), batch(1), alone=2) == [(None, "ValueError: not seven"), (2, None)]

    def test_an_exception_before_the_first_row_ends_the_worker(self) -> None:
        def broken(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            raise OSError("no model")
            yield from batches

        with pytest.raises(Exception, match="OSError: no model"):
            self.run(broken, batch(1))

    def test_what_cannot_be_read_is_not_the_functions_fault(self) -> None:
        def same(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            yield from batches

        def broken() -> Iterator[pa.RecordBatch]:
            yield batch(1)
            raise EOFError("gone")

        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        run = half(told("stream", kind, same, LongType(), limit_s=60.0, alone=0))
        with pytest.raises(EOFError, match="gone"):
            list(run(broken()))


class TestFrames:
    OUTPUT = StructType().add("b", LongType()).add("w", StringType())

    def run(self, function: Callable[..., Any], *batches: pa.RecordBatch, alone: int = 0) -> list[dict[str, Any]]:
        description = told(
            "frames",
            PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,
            function,
            self.OUTPUT,
            limit_s=60.0,
            alone=alone,
            output=self.OUTPUT.json(),
        )
        return [row for answer in half(description)(iter(batches)) for row in answer.to_pylist()]

    @staticmethod
    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"b": frame["_0"].map(picky), "w": "x"})

    def test_how_far_it_is_is_told_with_each_answer(self) -> None:
        found = self.run(self.doubled, batch(1, 2), batch(3))
        assert [row["b"] for row in found] == [2, 4, 6]
        assert [row["__tailrace_done"] for row in found] == ["0", None, "2"]

    def test_a_batch_that_makes_nothing_is_told_of(self) -> None:
        def none(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})[:0]

        found = self.run(none, batch(1), batch(2))
        assert [row["__tailrace_failure"] for row in found] == ["", ""]

    def test_only_the_rows_that_fail_fail(self) -> None:
        found = self.run(self.doubled, batch(1), batch(3, 7, 4))
        assert [row["b"] for row in found] == [2, 6, None, 8]
        assert [row["__tailrace_done"] for row in found] == ["0", "1", "2", "3"]
        assert "not seven" in found[2]["__tailrace_failure"]

    def test_what_has_ended_a_worker_is_done_alone(self) -> None:
        found = self.run(self.doubled, batch(1), batch(7), batch(2), alone=2)
        told_of = [(row["b"], row["__tailrace_done"]) for row in found]
        assert told_of == [(2, "0"), (None, "1"), (None, "1"), (None, "2"), (4, "2")]

    def test_one_that_fails_after_it_has_given_something_ends_the_worker(self) -> None:
        def half_done(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})
                raise ValueError("in the middle")

        with pytest.raises(Exception, match="in the middle") as raised:
            self.run(half_done, batch(1, 2))
        assert type(raised.value).__name__ == FunctionFailed.__name__
