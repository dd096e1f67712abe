"""A stateful processor in a worker, with an engine that answers its requests here."""

import struct
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasUdfUtils
from pyspark.sql.types import LongType, StringType, StructField, StructType
from pyspark.util import PythonEvalType

from tailrace.worker.state_processor import CLOSE, INIT, ROWS, TIMER

from .worker import load_worker

KEY = StructType([StructField("card", StringType())])
RESULT = StructType([StructField("card", StringType()), StructField("n", LongType())])
INPUT = pa.schema([("card", pa.string()), ("amount", pa.int64())])
ANSWER = 4


class Total(StatefulProcessor):
    closed = False

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", KEY_LESS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        before = self.total.get()[0] if self.total.exists() else 0
        after = before + sum(row.amount for row in rows)
        if after < 0:
            raise ValueError("overdrawn")
        self.total.update((after,))
        yield Row(card=key[0], n=after)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        times = timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()
        yield Row(card=key[0], n=expiredTimerInfo.getExpiryTimeInMs() + sum(times))

    def close(self) -> None:
        type(self).closed = True


KEY_LESS = StructType([StructField("n", LongType())])


class Engine:
    """What the engine does with a worker: it sends a message and answers requests until there are results."""

    def __init__(self, processor: StatefulProcessor, time_mode: str = "None") -> None:
        util = TransformWithStateInPandasUdfUtils(processor, time_mode)
        command = cloudpickle.dumps((util.transformWithStateUDF, RESULT))  # type: ignore[no-untyped-call]
        self.values: dict[str, bytes] = {}
        self.requests: list[str] = []
        self._reply_to = load_worker(
            {
                "call_with": "state",
                "kind": PythonEvalType.SQL_TRANSFORM_WITH_STATE_PYTHON_ROW_UDF,
                "plain": False,
                "schema": INPUT.serialize().to_pybytes(),
                "time_mode": time_mode,
                "key_schema": KEY.json(),
                "keys": [0],
                "values": [0, 1],
                "conf": {},
                "functions": [{"name": "total", "commands": [command]}],
            }
        )

    def send(self, *message: Any) -> Any:
        reply = self._reply_to(message)
        while len(reply) == 1:
            reply = self._reply_to((ANSWER, self._answer(reply[0])))
        for name, value in (reply[5] or {}).items():
            self._change(name, value)
        return reply

    def _change(self, name: str, value: bytes | None) -> None:
        self.values.pop(name, None)
        if value is not None:
            self.values[name] = value

    def rows(self, *rows: tuple[str, int]) -> Any:
        batch = pa.RecordBatch.from_pylist([{"card": card, "amount": amount} for card, amount in rows], schema=INPUT)
        message = bytearray(batch.serialize().to_pybytes())
        return self.send(ROWS, message, -1, -1, None, -1, {"total": self.values.get("total")})

    def control(self, kind: int) -> Any:
        return self.send(kind, None, -1, -1, None, -1, None)

    def _answer(self, request: bytes) -> bytes:
        import pyspark.sql.streaming.proto.StateMessage_pb2 as messages

        call = messages.StateRequest.FromString(request)
        response = messages.StateResponse(statusCode=0)
        if call.HasField("statefulProcessorCall"):
            self.requests.append(call.statefulProcessorCall.WhichOneof("method"))
        else:
            value = call.stateVariableRequest.valueStateCall
            method = value.WhichOneof("method")
            self.requests.append(method)
            if method == "valueStateUpdate":
                self._change(value.stateName, value.valueStateUpdate.value)
            elif method == "clear":
                self._change(value.stateName, None)
            elif value.stateName not in self.values:
                response.statusCode = 2
            elif method == "get":
                response.value = self.values[value.stateName]
        content = response.SerializeToString()
        return struct.pack(">i", len(content)) + content


def results(reply: Any) -> list[dict[str, Any]]:
    schema = pa.ipc.read_schema(pa.py_buffer(reply[3]))
    return pa.ipc.read_record_batch(pa.py_buffer(reply[0]), schema).to_pylist()


@pytest.fixture(params=["greenlet", "thread"], autouse=True)
def stack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test on both kinds of stack that a processor may have."""
    if request.param == "thread":
        monkeypatch.setitem(sys.modules, "greenlet", None)


def test_a_row_asks_for_its_state_and_changes_it() -> None:
    engine = Engine(Total())
    assert engine.control(INIT)[0] is None
    assert engine.requests == ["getValueState"]
    assert results(engine.rows(("ann", 2), ("ann", 3))) == [{"card": "ann", "n": 5}]
    second = engine.rows(("ann", 4))
    schema = pa.schema([("card", pa.string()), ("n", pa.int64())])
    assert pa.ipc.read_record_batch(pa.py_buffer(second[0]), schema).to_pylist() == [{"card": "ann", "n": 9}]
    assert engine.requests == ["getValueState"], "values, key and time come with the row"


class Rewrite(Total):
    """Reads a value after each change of it."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        seen = []
        for row in rows:
            if row.amount:
                self.total.update((row.amount,))
            else:
                self.total.clear()
            seen += [self.total.exists(), self.total.get()]
        assert seen == [True, (2,), False, None, True, (3,)]
        self.total.clear()
        yield Row(card=key[0], n=0)


def test_a_value_is_read_after_it_has_changed() -> None:
    engine = Engine(Rewrite())
    engine.control(INIT)
    engine.rows(("ann", 2), ("ann", 0), ("ann", 3))
    assert engine.values == {}


def test_an_exception_is_a_failure_and_the_worker_goes_on() -> None:
    engine = Engine(Total())
    engine.control(INIT)
    failed = engine.rows(("ann", -1))
    assert failed[0] is None
    assert '"function": "Total"' in failed[1][0]
    assert "overdrawn" in failed[1][0]
    assert results(engine.rows(("ann", 1))) == [{"card": "ann", "n": 1}]


def test_a_timer_gets_its_key_and_times() -> None:
    engine = Engine(Total(), "ProcessingTime")
    engine.control(INIT)
    key = cloudpickle.dumps(Row(card="ann"))  # type: ignore[no-untyped-call]
    assert results(engine.send(TIMER, None, 100, 20, key, 3, {})) == [{"card": "ann", "n": 123}]


def test_a_processor_is_closed() -> None:
    Total.closed = False
    engine = Engine(Total())
    engine.control(INIT)
    engine.control(CLOSE)
    assert Total.closed
