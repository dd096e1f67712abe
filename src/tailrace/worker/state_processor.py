"""Stateful processors: `transformWithState` and `transformWithStateInPandas`.

The processor runs on a stack of its own: when it asks for state, its request is the reply to the message, and the next
message is the answer.
"""

# The code is pickled by value, without names that only the body of a class uses, such as those of annotations.
from __future__ import annotations

import io
import json
import time
from typing import TYPE_CHECKING, Any

from tailrace.worker.failures import describe_failure
from tailrace.worker.iterator_call import start_call
from tailrace.worker.messages import ReplyEncoder, batch_reader
from tailrace.worker.plain import concat_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

INIT, ROWS, TIMER, CLOSE = range(4)
"""What a message is about; `jvm/python/PythonProcessor.scala` has the same numbers."""


def state_processor(spec: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function that runs one message through the user's processor."""
    from pyspark.serializers import CPickleSerializer

    (function,) = spec["functions"]
    # Not from a cache: each task has a processor of its own.
    call, declared = CPickleSerializer().loads(bytes(function["commands"][0]))  # type: ignore[no-untyped-call]
    return ProcessorCalls(call.__self__._stateful_processor, call, _format_of(spec, declared), spec).reply_to  # noqa: SLF001


class ProcessorCalls:
    """Calls the methods of a processor, one for each message."""

    def __init__(self, processor: Any, call: Callable[..., Any], rows: RowFormat, spec: Mapping[str, Any]) -> None:
        from pyspark.sql.types import StructType

        self._processor = processor
        self._call = call
        self._rows = rows
        self._replies = ReplyEncoder()
        self._request: bytes | None = None
        self._messages: Iterator[Any] = iter(())
        self._client = _client_of(StructType.fromJson(json.loads(spec["key_schema"])), self._ask)
        self._values = Values()
        self._stack = start_call(self._serve)

    def reply_to(self, message: Any) -> Any:
        """Return the reply to a message: the results of a method, or a request for state."""
        output = self._stack.send(message)
        return output[0] if output else (self._request,)

    def _ask(self, request: bytes) -> bytes:
        """Send a request for state, and return the answer, which is the next message."""
        self._request = request
        _, answer = next(self._messages)
        return bytes(answer)

    def _serve(self, messages: Iterator[Any]) -> Iterator[Any]:
        self._messages = messages
        for message in messages:
            began = time.perf_counter_ns()
            results, failures = None, {}
            self._values.changes.clear()
            try:
                results = self._run(*message)
            except MemoryError:
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the user's method raises is its failure
                name = type(self._processor).__name__
                failures[0] = describe_failure(name, self._processor.handleInputRows, raised)
            reply = self._replies.encode(results, failures, [time.perf_counter_ns() - began])
            yield *reply, dict(self._values.changes) or None
            if message[0] == CLOSE:
                return

    def _run(
        self, kind: int, batch: Any, processing_ms: int, watermark_ms: int, key: Any, expiry_ms: int, values: Any
    ) -> Any:
        """Call the method that a message is about; return its results as a batch, None without any."""
        from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues
        from pyspark.sql.streaming.stateful_processor_util import TransformWithStateInPandasFuncMode

        self._values.of_key = values or {}
        self._client.processing_ms, self._client.watermark_ms = processing_ms, watermark_ms
        if kind == ROWS:
            rows = self._rows.read(batch)
            mode = TransformWithStateInPandasFuncMode.PROCESS_DATA
            return self._rows.batch_of(self._call(self._client, mode, rows.key, iter(rows.values)))
        if kind == TIMER:
            from pyspark.serializers import CPickleSerializer

            expired = self._processor.handleExpiredTimer(
                key=CPickleSerializer().loads(bytes(key)),  # type: ignore[no-untyped-call]
                timerValues=TimerValues(processing_ms, watermark_ms),
                expiredTimerInfo=ExpiredTimerInfo(expiry_ms),
            )
            return self._rows.batch_of(expired)
        if kind == INIT:
            self._processor.init(_handle_of(self._client, self._values))
            self._client.set_handle_state(_states().INITIALIZED)
        else:
            self._processor.close()
        return None


def _states() -> Any:
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorHandleState

    return StatefulProcessorHandleState


def _client_of(schema: Any, ask: Callable[[bytes], bytes]) -> Any:
    """Return PySpark's client for state, whose requests go through a function instead of a connection."""
    from pyspark.serializers import CPickleSerializer
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    class Client(StatefulProcessorApiClient):
        """The engine knows the key and manages the processor's life, so it is not asked for these."""

        processing_ms = watermark_ms = -1

        def __init__(self) -> None:
            # Without PySpark's own, which connects.
            self.key_schema = schema
            self.handle_state = _states().CREATED
            self.pickleSer = CPickleSerializer()
            self.list_timer_iterator_cursors = {}
            self.expiry_timer_iterator_cursors = {}

        def set_handle_state(self, state: Any) -> None:
            self.handle_state = state

        def set_implicit_key(self, key: Any) -> None:
            """Do nothing: the engine has set the key of the row."""

        def remove_implicit_key(self) -> None:
            """Do nothing, likewise."""

        def get_timestamps(self, time_mode: str) -> tuple[int, int]:
            return (-1, -1) if time_mode.lower() == "none" else (self.processing_ms, self.watermark_ms)

        def _send_proto_message(self, message: bytes) -> None:
            self.sockfile = io.BytesIO(ask(message))

    return Client()


class Values:
    """The values of the key whose row is handled: they come with the row, and changes return with its results."""

    def __init__(self) -> None:
        self.of_key: Mapping[str, Any] = {}
        self.changes: dict[str, bytes | None] = {}


class ValueClient:
    """PySpark's client for a value, without requests for what has come with the row."""

    def __init__(self, client: Any, own: Any, values: Values) -> None:
        self._client = client
        self._own = own
        self._values = values

    def exists(self, name: str) -> bool:
        """Return whether the key has the value."""
        if name in self._values.changes:
            return self._values.changes[name] is not None
        return self._values.of_key[name] is not None if name in self._values.of_key else bool(self._own.exists(name))

    def get(self, name: str) -> Any:
        """Return the value, None without one."""
        if name in self._values.changes or name not in self._values.of_key:
            self._send_change(name)
            return self._own.get(name)
        value = self._values.of_key[name]
        return tuple(self._client._deserialize_from_bytes(bytes(value))) if value is not None else None  # noqa: SLF001

    def update(self, name: str, value: Any) -> None:
        """Change the value."""
        self._values.changes[name] = self._client._serialize_to_bytes(self._own.schema, value)  # noqa: SLF001

    def clear(self, name: str) -> None:
        """Remove the value."""
        self._values.changes[name] = None

    def _send_change(self, name: str) -> None:
        """Make a change now, so that the value is read as Spark returns it."""
        if name not in self._values.changes:
            return
        changed = self._values.changes.pop(name)
        if changed is None:
            self._own.clear(name)
        else:
            internal = self._client._deserialize_from_bytes(changed)  # noqa: SLF001
            self._own.update(name, self._own.schema.fromInternal(internal))
        self._values.of_key = {each: value for each, value in self._values.of_key.items() if each != name}


def _handle_of(client: Any, values: Values) -> Any:
    """Return PySpark's handle for a processor, with values that come with the row."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    class Handle(StatefulProcessorHandle):
        def getValueState(self, *args: Any, **kwargs: Any) -> Any:  # noqa: N802
            state = super().getValueState(*args, **kwargs)
            state._valueStateClient = ValueClient(client, state._valueStateClient, values)  # type: ignore[assignment] # noqa: SLF001
            return state

    return Handle(client)


class Rows:
    """The rows of a call: their key, and what the processor gets."""

    def __init__(self, key: tuple[Any, ...], values: Iterable[Any]) -> None:
        self.key = key
        self.values = values


class RowFormat:
    """Reads and writes rows as Spark's worker does for `transformWithState`."""

    def __init__(self, spec: Mapping[str, Any], declared: Any) -> None:
        from pyspark.worker import RunnerConf

        self._read = batch_reader(spec)
        self._keys = [int(each) for each in spec["keys"]]
        self._values = [int(each) for each in spec["values"]]
        self._declared = declared
        self._conf: Any = RunnerConf(dict(spec["conf"]))

    def read(self, message: Any) -> Rows:
        """Return the rows in a message."""
        from pyspark.sql import Row

        batch = self._read(message)
        row_of = Row(*batch.schema.names)
        columns = [column.to_pylist() for column in batch.columns]
        key = tuple(columns[number][0] for number in self._keys)
        return Rows(key, [row_of(*each) for each in zip(*columns, strict=True)])

    def batch_of(self, results: Iterable[Any]) -> Any:
        """Return what a method yields as one batch; None if it yields nothing."""
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        rows = [row.asDict(recursive=True) for row in results]
        # The same settings as in Spark's worker.
        fields = list(to_arrow_type(self._declared, timezone="UTC", prefers_large_types=False))
        return pa.RecordBatch.from_pylist(rows, schema=pa.schema(fields)) if rows else None


class PandasFormat(RowFormat):
    """Reads and writes data frames as Spark's worker does for `transformWithStateInPandas`."""

    def read(self, message: Any) -> Rows:
        """Return the rows in a message, as one data frame."""
        import pandas as pd
        from pyspark.sql.conversion import ArrowBatchTransformer

        series = ArrowBatchTransformer.to_pandas(
            self._read(message), timezone=self._conf.timezone, prefer_int_ext_dtype=self._conf.prefer_int_ext_dtype
        )
        rows = list(pd.concat(series, axis=1).itertuples(index=False))
        key = tuple(rows[0][number] for number in self._keys)
        return Rows(key, [pd.DataFrame(rows).iloc[:, self._values]])

    def batch_of(self, results: Iterable[Any]) -> Any:
        """Return the data frames that a method yields as one batch; None if it yields none."""
        from pyspark.sql.conversion import ArrowBatchTransformer, PandasToArrowConversion
        from pyspark.sql.types import StructField, StructType

        schema = StructType([StructField("_0", self._declared)])
        batches = [
            ArrowBatchTransformer.flatten_struct(
                PandasToArrowConversion.convert(
                    [_required_frame(result)],
                    schema,
                    timezone=self._conf.timezone,
                    safecheck=self._conf.safecheck,
                    arrow_cast=True,
                    assign_cols_by_name=self._conf.assign_cols_by_name,
                    int_to_decimal_coercion_enabled=self._conf.int_to_decimal_coercion_enabled,
                )
            )
            for result in results
        ]
        return concat_batches(batches) if batches else None


def _required_frame(result: Any) -> Any:
    import pandas as pd

    if not isinstance(result, pd.DataFrame):
        raise TypeError(f"the processor returned {type(result).__name__}, not a pandas DataFrame")
    return result


def _format_of(spec: Mapping[str, Any], declared: Any) -> RowFormat:
    from pyspark.util import PythonEvalType

    in_pandas = spec["kind"] == PythonEvalType.SQL_TRANSFORM_WITH_STATE_PANDAS_UDF
    return (PandasFormat if in_pandas else RowFormat)(spec, declared)
