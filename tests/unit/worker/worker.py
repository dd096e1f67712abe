"""Stands in for Spark's worker: builds function specs, loads the worker code and decodes replies."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import DataType
from pyspark.util import PythonEvalType

from tailrace.worker import pickled_worker

CONF = {"spark.sql.session.timeZone": "UTC"}
SCHEMA = pa.schema([("_0", pa.int64())])
PLAIN = (
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF,
)


def spec_of(
    call_with: str, kind: int, function: Callable[..., Any], returns: DataType, retries: int = 0, **more: Any
) -> dict[str, Any]:
    call = {
        "name": "f",
        "commands": [cloudpickle.dumps((function, returns))],
        "args": [0],
        "kwargs": {},
        "id": 1,
    }
    options = {"inputs": ['"long"'], "plain": kind in PLAIN, "must_fail": False, "alone": retries}
    return {"call_with": call_with, "kind": kind, "conf": CONF, "functions": [call], **options, **more}


def load_worker(spec: dict[str, Any]) -> Callable[..., Any]:
    function, _ = pickle.loads(pickled_worker())(spec)

    def run(message: Any) -> Any:
        reply = function(message)
        return pickle.loads(reply)[0] if isinstance(reply, bytes) else reply

    return run


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
    """Encode a batch as the engine does for numbers without nulls, for functions that do not take Arrow."""
    if any(column.null_count for column in batch.columns):
        return in_arrow(batch)
    return tuple(column.to_numpy().tobytes() for column in batch.columns)


class BothEncodings:
    """Tests that run with Arrow batches and with plain batches."""

    @pytest.fixture(autouse=True, params=[in_arrow, plain])
    def sent(self, request: pytest.FixtureRequest) -> None:
        self.message: Callable[[pa.RecordBatch], Any] = request.param


def replies(
    run: Callable[[Any], Any], messages: Iterable[Any], names: Sequence[str] = ("_0",)
) -> Iterator[tuple[list[Any], Any, int]]:
    """Decode replies like the engine: rows, failures, number of completed rows."""
    schema = None
    for message in messages:
        results, failures, times, new_schema, completed = run(message)
        assert len(times) == 1
        schema = pa.ipc.read_schema(pa.py_buffer(new_schema)) if new_schema is not None else schema
        if isinstance(results, list):
            columns = [
                np.frombuffer(each, dtype="int64").tolist() if isinstance(each, bytes) else each for each in results
            ]
            rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            rows = pa.ipc.read_record_batch(pa.py_buffer(results), schema).to_pylist() if results is not None else []
        yield rows, failures or {}, completed
