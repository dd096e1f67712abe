"""Decodes batches and encodes replies: plain columns, or Arrow without the framing of a stream."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.worker.plain import PlainBatch, PlainReader

END_OF_INPUT = b"\0"
"""The message after the last batch."""


def batch_reader(spec: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Return a function that decodes batches; it returns None for the end of the input."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(bytes(spec["schema"])))
    plain = PlainReader(schema) if spec["plain"] else None

    def read(message: Any) -> Any:
        if plain is not None and type(message) is tuple:
            return plain.batch(message)
        return None if message == END_OF_INPUT else pa.ipc.read_record_batch(pa.py_buffer(message), schema)

    return read


class ReplyEncoder:
    """Encodes replies; the first Arrow reply carries the schema."""

    def __init__(self) -> None:
        self._schema: Any = None

    def encode(
        self, results: Any, failures: Mapping[int, str], times: Sequence[int], completed: int = 0
    ) -> tuple[Any, ...]:
        """Return a reply: results, failures by row, the time of each function, a new schema, completed rows.

        `completed` is the number of input rows that a map function has completed.
        """
        if isinstance(results, PlainBatch):
            return (
                [_plain_column(each) for each in results.columns],
                dict(failures) or None,
                list(times),
                None,
                completed,
            )
        schema = None
        if results is not None and results.schema != self._schema:
            self._schema = results.schema
            schema = results.schema.serialize().to_pybytes()
        encoded = results.serialize().to_pybytes() if results is not None else None
        return encoded, dict(failures) or None, list(times), schema, completed


def _plain_column(column: Any) -> Any:
    """Return a plain column for the engine: numpy numbers as bytes, everything else as a list."""
    if isinstance(column, list):
        return column
    return column.tolist() if column.dtype.hasobject else column.tobytes()
