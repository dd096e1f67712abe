"""Spark's worker in place of one: what it tells the Python half of the engine, and what it gets for an answer."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import DataType
from pyspark.util import PythonEvalType

from tailrace.worker import pickled_half

CONF = {"spark.sql.session.timeZone": "UTC"}
SCHEMA = pa.schema([("_0", pa.int64())])
PLAIN = (
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
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
    takes = {"inputs": ['"long"'], "plain": kind in PLAIN, "must_fail": False}
    return {"way": way, "kind": kind, "conf": CONF, "functions": [called], **takes, **more}


def half(description: dict[str, Any]) -> Callable[..., Any]:
    made, _ = pickle.loads(pickled_half())(description)

    def answer(message: Any) -> Any:
        given = made(message)
        return pickle.loads(given)[0] if isinstance(given, bytes) else given

    return answer


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
    """As the engine sends numbers without nulls, to functions that are not on Arrow."""
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
