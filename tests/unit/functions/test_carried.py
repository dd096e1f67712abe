"""The Python half of the engine, as Spark's worker calls it; no JVM is needed for that."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import DataType, LongType, StringType, StructType
from pyspark.util import PythonEvalType

from tailrace.functions import pickled_half
from tailrace.functions.failures import FunctionFailed
from tailrace.functions.messages import END

CONF = {"spark.sql.session.timeZone": "UTC"}
SCHEMA = pa.schema([("_0", pa.int64())])
ON_PANDAS = (
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,
)


def told(way: str, kind: int, function: Callable[..., Any], returns: DataType, **more: Any) -> dict[str, Any]:
    called = {
        "name": "f",
        "commands": [cloudpickle.dumps((function, returns))],
        "args": [0],
        "kwargs": {},
        "id": 1,
    }
    on_pandas = kind in ON_PANDAS
    return {
        "way": way, "kind": kind, "conf": CONF, "functions": [called], "inputs": ['"long"'], "plain": on_pandas, **more
    }  # fmt: skip


def half(description: dict[str, Any]) -> Callable[..., Any]:
    made, _ = pickle.loads(pickled_half())(description)
    return made  # type: ignore[no-any-return]


def picky(value: int) -> int:
    if value == 7:
        raise ValueError("not seven")
    return value * 2


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], ["_0"])


SENT = SCHEMA.serialize().to_pybytes()


def in_arrow(batch: pa.RecordBatch) -> Any:
    return batch.serialize().to_pybytes()


def plain(batch: pa.RecordBatch) -> Any:
    """As the engine sends numbers without nulls to functions on pandas."""
    if any(column.null_count for column in batch.columns):
        return in_arrow(batch)
    return tuple(column.to_numpy().tobytes() for column in batch.columns)


class BothWays:
    """Tests to which batches come in Arrow, and plain."""

    @pytest.fixture(autouse=True, params=[in_arrow, plain])
    def sent(self, request: pytest.FixtureRequest) -> None:
        self.message: Callable[[pa.RecordBatch], Any] = request.param


def answers(
    run: Callable[[Any], Any], messages: Iterable[Any], names: Sequence[str] = ("_0",)
) -> Iterator[tuple[list[Any], Any, int]]:
    """Answers as the engine reads them: rows, failures, rows done with."""
    kind = None
    for message in messages:
        results, failures, spent, told_kind, done = run(message)
        assert len(spent) == 1
        kind = pa.ipc.read_schema(pa.py_buffer(told_kind)) if told_kind is not None else kind
        if isinstance(results, list):
            columns = [
                np.frombuffer(each, dtype="int64").tolist() if isinstance(each, bytes) else each for each in results
            ]
            made = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            made = pa.ipc.read_record_batch(pa.py_buffer(results), kind).to_pylist() if results is not None else []
        yield made, failures or {}, done


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


def test_one_that_is_asked_whether_it_is_there_calls_nothing() -> None:
    assert half(told("rows", PythonEvalType.SQL_BATCHED_UDF, picky, LongType()))(()) is None
    run = half(told("columns", PythonEvalType.SQL_SCALAR_ARROW_UDF, picky, LongType(), schema=SENT))
    assert run(b"") is None


class TestColumns(BothWays):
    def run(self, function: Callable[..., Any], kind: int, *batches: pa.RecordBatch) -> list[Any]:
        run = half(told("columns", kind, function, LongType(), schema=SENT))
        messages = [self.message(each) for each in batches]
        return [([row["_0"] for row in made], failures) for made, failures, _ in answers(run, messages)]

    def test_pandas(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values * 2

        found = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), batch(3))
        assert found == [([2, 4], {}), ([6], {})]

    def test_numbers_with_nulls_and_results_of_another_type_go_sparks_way(self) -> None:
        def increased(values: pd.Series) -> pd.Series:
            return values.astype("float64") + 1.0  # declared as whole numbers

        nulls = pa.RecordBatch.from_arrays([pa.array([1, None], pa.int64())], ["_0"])
        found = self.run(increased, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 2), nulls, batch(3))
        assert found == [([2, 3], {}), ([2, None], {}), ([4], {})]

    def test_a_function_may_write_into_what_it_gets(self) -> None:
        def careless(values: pd.Series) -> pd.Series:
            values[:] = values * 2
            if (values == 14).any():
                raise ValueError("not seven")
            return values

        found = self.run(careless, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 7, 3))
        assert [values for values, _ in found] == [[2, None, 6]]

    def test_what_a_function_gave_is_not_what_it_writes_next(self) -> None:
        buffer = np.zeros(8, dtype="int64")

        def in_place(values: pd.Series) -> pd.Series:
            if (values == 7).any():
                raise ValueError("not seven")
            made = buffer[: len(values)]
            made[:] = values * 2
            return pd.Series(made)

        found = self.run(in_place, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(1, 7, 3))
        assert [values for values, _ in found] == [[2, None, 6]]

    def test_several_functions_get_the_same(self) -> None:
        def careless(values: pd.Series) -> pd.Series:
            values[:] = 0
            return values

        def same(values: pd.Series) -> pd.Series:
            return values.where(values > 1)  # a null, where it is not

        description = told("columns", PythonEvalType.SQL_SCALAR_PANDAS_UDF, careless, LongType(), schema=SENT)
        other = told("columns", PythonEvalType.SQL_SCALAR_PANDAS_UDF, same, LongType())
        description["functions"] += other["functions"]
        results, failures, spent, kind, _ = half(description)(self.message(batch(1, 2)))
        read = pa.ipc.read_record_batch(pa.py_buffer(results), pa.ipc.read_schema(pa.py_buffer(kind)))
        assert read.to_pydict() == {"_0": [0, 0], "_1": [None, 2]}
        assert failures is None
        assert len(spent) == 2

    def test_only_the_rows_that_fail_fail(self) -> None:
        def doubled(values: pd.Series) -> pd.Series:
            return values.map(picky)

        found = self.run(doubled, PythonEvalType.SQL_SCALAR_PANDAS_UDF, batch(7), batch(1, 7, 3), batch(4))
        assert [values for values, _ in found] == [[None], [2, None, 6], [8]]
        assert [[*failures] for _, failures in found] == [[0], [1], []]


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
    before = told("rows", PythonEvalType.SQL_BATCHED_UDF, Model(), LongType())
    first, second = half(before), half(before)
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
    run = half(told("frames", kind, frames, output, alone=0, must_fail=False, schema=schema))
    ((made, failures, _),) = answers(run, [(np.array([1, 2, 3]).tobytes(), ["ab", None, "ü"])], output.names)
    assert made == [{"w": "ab", "n": 3}, {"w": None, "n": 2}, {"w": "ü", "n": 4}]
    assert failures == {}


@pytest.fixture(params=["greenlet", "thread"])
def waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a function waits for its next batch."""
    if request.param == "thread":
        monkeypatch.setitem(sys.modules, "greenlet", None)


@pytest.mark.usefixtures("waiting")
class TestStream(BothWays):
    def run(self, function: Callable[..., Any], *batches: pa.RecordBatch, alone: int = 0) -> list[tuple[Any, Any]]:
        description = told(
            "stream", PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF, function, LongType(), alone=alone, schema=SENT
        )
        found = []
        for made, failures, _ in answers(half(description), [*map(self.message, batches), END]):
            errors = {at: json.loads(told)["error"].partition(" (")[0] for at, told in failures.items()}
            found += [(row["_0"], errors.get(at)) for at, row in enumerate(made)]
        return found

    def test_each_batch_is_answered_before_the_next(self) -> None:
        def same(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            yield from batches

        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        run = half(told("stream", kind, same, LongType(), alone=0, schema=SENT))
        found = [made for made, _, _ in answers(run, [*map(self.message, [batch(1), batch(2, 3)]), END])]
        assert found == [[{"_0": 1}], [{"_0": 2}, {"_0": 3}], []]

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

        with pytest.raises(Exception, match="OSError: no model") as raised:
            self.run(broken, batch(1))
        assert type(raised.value).__name__ == FunctionFailed.__name__

    def test_what_comes_before_the_first_batch_is_done_before_it_is_there(
        self, tmp_path: Path, wait_until: Callable[..., None]
    ) -> None:
        loaded = tmp_path / "loaded"

        def scored(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            loaded.touch()
            yield from batches

        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        half(told("stream", kind, scored, LongType(), alone=0, schema=SENT))
        wait_until(loaded.exists, "the model is loaded")

    def test_an_import_that_fails_is_the_functions_own(self, tmp_path: Path) -> None:
        calls = tmp_path / "calls"

        def scored(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            with calls.open("a") as noted:
                noted.write("called\n")
            raise ImportError("no such library")
            yield from batches

        with pytest.raises(Exception, match="no such library"):
            self.run(scored, batch(1))
        assert calls.read_text() == "called\n"

    def test_memory_is_not_the_rows_affair(self) -> None:
        def hungry(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for _ in batches:
                raise MemoryError
            yield from batches

        with pytest.raises(MemoryError):
            self.run(hungry, batch(1))


@pytest.mark.usefixtures("waiting")
class TestFrames(BothWays):
    OUTPUT = StructType().add("b", LongType()).add("w", StringType())

    def run(
        self, function: Callable[..., Any], *batches: pa.RecordBatch, alone: int = 0, must_fail: bool = False
    ) -> list[Any]:
        """For each batch, and for their end, what was made of it, which rows failed, and how many are done with."""
        kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
        run = half(told("frames", kind, function, self.OUTPUT, alone=alone, must_fail=must_fail, schema=SENT))
        answered = answers(run, [*map(self.message, batches), END], self.OUTPUT.names)
        return [([row["b"] for row in made], [*failures], done) for made, failures, done in answered]

    @staticmethod
    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"b": frame["_0"].map(picky), "w": "x"})

    def test_how_far_it_is_is_told_with_each_answer(self) -> None:
        found = self.run(self.doubled, batch(1, 2), batch(3))
        assert found == [([2, 4], [], 0), ([6], [], 2), ([], [], 1)]

    def test_rows_that_a_function_makes_nothing_of_stay_open_until_it_makes_something(self) -> None:
        def some(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                if frame["_0"][0] > 2:
                    yield pd.DataFrame({"b": frame["_0"], "w": "x"})

        found = self.run(some, batch(1), batch(2, 2), batch(3), batch(1))
        assert found == [([], [], 0), ([], [], 0), ([3], [], 3), ([], [], 0), ([], [], 2)]

    def test_what_one_gave_is_not_what_it_writes_next(self) -> None:
        def in_place(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                made = pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield made
                made["b"] += 10
                yield made

        assert self.run(in_place, batch(1, 2)) == [([1, 2, 11, 12], [], 0), ([], [], 2)]

    def test_what_must_not_be_null_goes_sparks_way(self) -> None:
        def same(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"]})

        output = StructType().add("b", LongType(), nullable=False)
        kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
        run = half(told("frames", kind, same, output, alone=0, must_fail=False, schema=SENT))
        results, *_ = run(self.message(batch(1, 2)))
        assert isinstance(results, bytes)  # in Arrow

    def test_frames_of_which_some_have_nulls_are_one_answer(self) -> None:
        def mixed(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield pd.DataFrame({"b": frame["_0"].where(frame["_0"] > 1), "w": "x"})

        assert self.run(mixed, batch(1, 2)) == [([1, 2, None, 2], [], 0), ([], [], 2)]

    def test_several_frames_of_a_batch_are_one_answer(self) -> None:
        def twice(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                made = pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield made
                yield made[:0]
                yield made

        assert self.run(twice, batch(1, 2)) == [([1, 2, 1, 2], [], 0), ([], [], 2)]

    def test_what_one_keeps_back_comes_at_the_end(self) -> None:
        def last(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"b": [sum(int(frame["_0"].sum()) for frame in frames)], "w": "x"})

        assert self.run(last, batch(1), batch(2, 3)) == [([], [], 0), ([], [], 0), ([6], [], 3)]

    def test_one_that_wants_no_more_is_done_with_all(self) -> None:
        def first(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"b": next(frames)["_0"], "w": "x"})

        assert self.run(first, batch(1), batch(2), batch(3)) == [([1], [], 1), ([], [], 1), ([], [], 1), ([], [], 0)]

    def test_only_the_rows_that_fail_fail(self) -> None:
        found = self.run(self.doubled, batch(1), batch(3, 7, 4), batch(5))
        assert found == [([2], [], 0), ([6, 8], [2], 4), ([10], [], 0), ([], [], 1)]

    def test_what_one_had_kept_back_when_it_raised_is_tried_again(self) -> None:
        def pairs(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            held: list[int] = []
            for frame in frames:
                held += frame["_0"].map(picky).tolist()
                if len(held) == 2:
                    yield pd.DataFrame({"b": held, "w": "x"})
                    held = []
            if held:
                yield pd.DataFrame({"b": held, "w": "x"})

        assert self.run(pairs, batch(1), batch(7), batch(3), batch(4)) == [
            ([], [], 0), ([2], [1], 2), ([], [], 0), ([6, 8], [], 1), ([], [], 1),
        ]  # fmt: skip

    def test_what_has_ended_a_worker_is_done_alone(self) -> None:
        found = self.run(self.doubled, batch(1), batch(7), batch(2), alone=2)
        assert found == [([2], [], 1), ([], [0], 1), ([4], [], 0), ([], [], 1)]

    def test_one_that_fails_after_it_has_given_something_is_tried_row_by_row(self) -> None:
        def half_done(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})
                frame["_0"].map(picky)

        assert self.run(half_done, batch(1, 7, 2)) == [([1, 2], [1], 3), ([], [], 0)]

    def test_an_exception_that_no_row_has_to_do_with_ends_the_worker_unless_it_is_to_go_on(self) -> None:
        def moody(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for number, frame in enumerate(frames):
                if number == 1:
                    raise OSError("for a moment")
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})

        assert self.run(moody, batch(1), batch(2)) == [([1], [], 0), ([2], [], 2), ([], [], 0)]
        with pytest.raises(Exception, match="for a moment") as raised:
            self.run(moody, batch(1), batch(2), must_fail=True)
        assert type(raised.value).__name__ == FunctionFailed.__name__

    def test_one_that_keeps_back_more_than_is_held_ends_the_worker_when_it_raises(self) -> None:
        def late(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for number, frame in enumerate(frames):
                if number == 2:
                    raise ValueError("too late")
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})[:0]

        with pytest.raises(Exception, match="too late"):
            self.run(late, batch(*range(50_000)), batch(*range(50_000)), batch(1))

    def test_columns_in_another_order_are_refused(self) -> None:
        def swapped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, each in enumerate(batches):
                names = ["a", "b"] if number == 0 else ["b", "a"]
                yield pa.RecordBatch.from_arrays([each.column(0), each.column(0)], names)

        output = StructType().add("a", LongType()).add("b", LongType())
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        run = half(told("frames", kind, swapped, output, alone=0, must_fail=False, schema=SENT))
        with pytest.raises(ValueError, match="columns"):
            list(answers(run, map(in_arrow, [batch(1), batch(2)])))

    def test_an_exception_at_the_end_ends_the_worker(self) -> None:
        def broken(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield from self.doubled(frames)
            raise ValueError("cannot save")

        with pytest.raises(Exception, match="cannot save") as raised:
            self.run(broken, batch(1))
        assert type(raised.value).__name__ == FunctionFailed.__name__
