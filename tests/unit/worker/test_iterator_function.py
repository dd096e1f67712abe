"""Functions over iterators, which are suspended until their next batch arrives."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType
from pyspark.util import PythonEvalType

from tailrace.worker.failures import FunctionFailed
from tailrace.worker.messages import END_OF_INPUT

from .worker import SENT, BothEncodings, batch, in_arrow, load_worker, picky, replies, spec_of


@pytest.fixture(params=["greenlet", "thread"])
def suspension(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the function in a greenlet, and in a thread."""
    if request.param == "thread":
        monkeypatch.setitem(sys.modules, "greenlet", None)


@pytest.mark.usefixtures("suspension")
class TestStream(BothEncodings):
    def run(
        self, function: Callable[..., Any], *batches: pa.RecordBatch, retries: int = 0, must_fail: bool = False
    ) -> list[tuple[Any, Any]]:
        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        spec = spec_of("stream", kind, function, LongType(), retries=retries, must_fail=must_fail, schema=SENT)
        actual = []
        for result, failures, _ in replies(load_worker(spec), [*map(self.message, batches), END_OF_INPUT]):
            errors = {index: json.loads(failure)["error"].partition(" (")[0] for index, failure in failures.items()}
            actual += [(row["_0"], errors.get(index)) for index, row in enumerate(result)]
        return actual

    def test_each_batch_has_its_reply_before_the_next(self) -> None:
        def same(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            yield from batches

        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        run = load_worker(spec_of("stream", kind, same, LongType(), retries=0, schema=SENT))
        actual = [result for result, _, _ in replies(run, [*map(self.message, [batch(1), batch(2, 3)]), END_OF_INPUT])]
        assert actual == [[{"_0": 1}], [{"_0": 2}, {"_0": 3}], []]

    def test_it_continues_after_an_exception(self) -> None:
        def doubled(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for values in batches:
                yield values.map(picky)

        actual = self.run(doubled, batch(1, 2), batch(3, 7, 4), batch(5))
        assert actual == [(2, None), (4, None), (6, None), (None, "ValueError: not seven"), (8, None), (10, None)]

    def test_one_that_looks_ahead_fails_on_the_right_row(self) -> None:
        def ahead(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            held: list[pd.Series] = []
            for values in batches:
                held.append(values.map(picky))
                if len(held) == 2:
                    yield held.pop(0)
            yield from held

        actual = self.run(ahead, batch(1), batch(7), batch(3), batch(4))
        assert actual == [(2, None), (None, "ValueError: not seven"), (6, None), (8, None)]
        assert self.run(ahead, batch(7), batch(1), retries=2) == [(None, "ValueError: not seven"), (2, None)]

    def test_an_exception_before_the_first_row_ends_the_worker(self) -> None:
        def broken(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            raise OSError("no model")
            yield from batches

        with pytest.raises(Exception, match="OSError: no model") as raised:
            self.run(broken, batch(1))
        assert type(raised.value).__name__ == FunctionFailed.__name__

    def test_an_exception_that_no_single_row_reproduces_ends_the_worker_only_with_must_fail(self) -> None:
        def moody(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for number, values in enumerate(batches):
                if number == 1:
                    raise OSError("for a moment")
                yield values

        assert self.run(moody, batch(1), batch(2)) == [(1, None), (2, None)]
        with pytest.raises(Exception, match="for a moment") as raised:
            self.run(moody, batch(1), batch(2), must_fail=True)
        assert type(raised.value).__name__ == FunctionFailed.__name__

    def test_code_before_the_first_batch_runs_before_there_is_a_batch(self, tmp_path: Path) -> None:
        loaded = tmp_path / "loaded"

        def scored(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            loaded.touch()
            yield from batches

        kind = PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF
        load_worker(spec_of("stream", kind, scored, LongType(), retries=0, schema=SENT))
        assert loaded.exists()

    def test_an_import_error_of_the_function_is_raised_once(self, tmp_path: Path) -> None:
        calls = tmp_path / "calls"

        def scored(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            with calls.open("a") as noted:
                noted.write("called\n")
            raise ImportError("no such library")
            yield from batches

        with pytest.raises(Exception, match="no such library"):
            self.run(scored, batch(1))
        assert calls.read_text() == "called\n"

    def test_a_memory_error_is_not_the_failure_of_a_row(self) -> None:
        def hungry(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
            for _ in batches:
                raise MemoryError
            yield from batches

        with pytest.raises(MemoryError):
            self.run(hungry, batch(1))


@pytest.mark.usefixtures("suspension")
class TestFrames(BothEncodings):
    OUTPUT = StructType().add("b", LongType()).add("w", StringType())

    def run(
        self, function: Callable[..., Any], *batches: pa.RecordBatch, retries: int = 0, must_fail: bool = False
    ) -> list[Any]:
        """Return output, failed rows and number of completed rows for each batch and for the end of input."""
        kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
        run = load_worker(
            spec_of("frames", kind, function, self.OUTPUT, retries=retries, must_fail=must_fail, schema=SENT)
        )
        decoded = replies(run, [*map(self.message, batches), END_OF_INPUT], self.OUTPUT.names)
        return [([row["b"] for row in result], [*failures], completed) for result, failures, completed in decoded]

    @staticmethod
    def doubled(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"b": frame["_0"].map(picky), "w": "x"})

    def test_each_reply_has_the_number_of_completed_rows(self) -> None:
        actual = self.run(self.doubled, batch(1, 2), batch(3))
        assert actual == [([2, 4], [], 0), ([6], [], 2), ([], [], 1)]

    def test_rows_without_output_are_pending_until_there_is_output(self) -> None:
        def some(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                if frame["_0"][0] > 2:
                    yield pd.DataFrame({"b": frame["_0"], "w": "x"})

        actual = self.run(some, batch(1), batch(2, 2), batch(3), batch(1))
        assert actual == [([], [], 0), ([], [], 0), ([3], [], 3), ([], [], 0), ([], [], 2)]

    def test_a_frame_can_be_changed_after_it_was_yielded(self) -> None:
        def in_place(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                result = pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield result
                result["b"] += 10
                yield result

        assert self.run(in_place, batch(1, 2)) == [([1, 2, 11, 12], [], 0), ([], [], 2)]

    def test_columns_that_are_not_nullable_use_sparks_conversion(self) -> None:
        def same(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"]})

        output = StructType().add("b", LongType(), nullable=False)
        kind = PythonEvalType.SQL_MAP_PANDAS_ITER_UDF
        run = load_worker(spec_of("frames", kind, same, output, retries=0, schema=SENT))
        results, *_ = run(self.message(batch(1, 2)))
        assert isinstance(results, bytes)  # in Arrow

    def test_frames_with_and_without_nulls_are_one_reply(self) -> None:
        def mixed(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield pd.DataFrame({"b": frame["_0"].where(frame["_0"] > 1), "w": "x"})

        assert self.run(mixed, batch(1, 2)) == [([1, 2, None, 2], [], 0), ([], [], 2)]

    def test_several_frames_of_a_batch_are_one_reply(self) -> None:
        def twice(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                result = pd.DataFrame({"b": frame["_0"], "w": "x"})
                yield result
                yield result[:0]
                yield result

        assert self.run(twice, batch(1, 2)) == [([1, 2, 1, 2], [], 0), ([], [], 2)]

    def test_rows_that_are_held_back_arrive_at_the_end(self) -> None:
        def last(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"b": [sum(int(frame["_0"].sum()) for frame in frames)], "w": "x"})

        assert self.run(last, batch(1), batch(2, 3)) == [([], [], 0), ([], [], 0), ([6], [], 3)]

    def test_a_function_that_has_returned_completes_all_rows(self) -> None:
        def first(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"b": next(frames)["_0"], "w": "x"})

        assert self.run(first, batch(1), batch(2), batch(3)) == [([1], [], 1), ([], [], 1), ([], [], 1), ([], [], 0)]

    def test_output_without_any_input_is_not_lost(self) -> None:
        def header(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"b": [5], "w": "x"})

        assert self.run(header, batch(1), batch(2)) == [([5], [], 1), ([], [], 1), ([], [], 0)]

    def test_nulls_without_an_arrow_type_have_the_declared_type(self) -> None:
        def untyped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for each in batches:
                numbers = [number or None for number in each.column(0).to_pylist()]
                columns = [
                    pa.array(numbers),
                    pa.array([[] if number is None else [number] for number in numbers]),
                    pa.array([{"x": number} for number in numbers]),
                ]
                yield pa.RecordBatch.from_arrays(columns, ["b", "list", "s"])

        output = StructType().add("b", LongType()).add("list", ArrayType(LongType()))
        output = output.add("s", StructType().add("x", LongType()))
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        run = load_worker(spec_of("frames", kind, untyped, output, retries=0, schema=SENT))
        actual = [result for result, _, _ in replies(run, map(in_arrow, [batch(0), batch(1, 0)]))]
        nothing = {"b": None, "list": [], "s": {"x": None}}
        assert actual == [[nothing], [{"b": 1, "list": [1], "s": {"x": 1}}, nothing]]

    def test_only_the_rows_that_fail_fail(self) -> None:
        actual = self.run(self.doubled, batch(1), batch(3, 7, 4), batch(5))
        assert actual == [([2], [], 0), ([6, 8], [2], 4), ([10], [], 0), ([], [], 1)]

    def test_rows_held_back_before_an_exception_are_retried(self) -> None:
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

    def test_the_rows_of_a_dead_worker_are_retried_one_by_one(self) -> None:
        actual = self.run(self.doubled, batch(1), batch(7), batch(2), retries=2)
        assert actual == [([2], [], 1), ([], [0], 1), ([4], [], 0), ([], [], 1)]

    def test_a_batch_that_fails_after_some_output_is_retried_row_by_row(self) -> None:
        def late_failure(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for frame in frames:
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})
                frame["_0"].map(picky)

        assert self.run(late_failure, batch(1, 7, 2)) == [([1, 2], [1], 3), ([], [], 0)]

    def test_an_exception_that_no_single_row_reproduces_ends_the_worker_only_with_must_fail(self) -> None:
        def moody(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for number, frame in enumerate(frames):
                if number == 1:
                    raise OSError("for a moment")
                yield pd.DataFrame({"b": frame["_0"], "w": "x"})

        assert self.run(moody, batch(1), batch(2)) == [([1], [], 0), ([2], [], 2), ([], [], 0)]
        with pytest.raises(Exception, match="for a moment") as raised:
            self.run(moody, batch(1), batch(2), must_fail=True)
        assert type(raised.value).__name__ == FunctionFailed.__name__

    def test_an_exception_after_more_rows_than_are_held_ends_the_worker(self) -> None:
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
        run = load_worker(spec_of("frames", kind, swapped, output, retries=0, schema=SENT))
        with pytest.raises(ValueError, match="columns"):
            list(replies(run, map(in_arrow, [batch(1), batch(2)])))

    def test_an_exception_at_the_end_ends_the_worker(self) -> None:
        def broken(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            yield from self.doubled(frames)
            raise ValueError("cannot save")

        with pytest.raises(Exception, match="cannot save") as raised:
            self.run(broken, batch(1))
        assert type(raised.value).__name__ == FunctionFailed.__name__
