"""Batches as the engine sends and takes them: plain columns, or Arrow without the framing of a stream of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tailrace.worker.plain import PlainBatch, PlainReader

END = b"\0"
"""There are no more batches."""


def reader(told: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Reads batches; None after the last."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(bytes(told["schema"])))
    plain = PlainReader(schema) if told["plain"] else None

    def read(message: Any) -> Any:
        if plain is not None and type(message) is tuple:
            return plain.batch(message)
        return None if message == END else pa.ipc.read_record_batch(pa.py_buffer(message), schema)

    return read


class Answers:
    """Answers to messages, of which the first in Arrow tells of what kind those are."""

    def __init__(self) -> None:
        self._schema: Any = None

    def of(self, made: Any, failures: Mapping[int, str], spent: Sequence[int], done: int = 0) -> tuple[Any, ...]:
        """What functions made, what went wrong with which row, and how long each function took.

        Where a function makes as many rows as it likes, `done` tells of how many it will not make any more.
        """
        if isinstance(made, PlainBatch):
            return [_sent(each) for each in made.columns], dict(failures) or None, list(spent), None, done
        kind = None
        if made is not None and made.schema != self._schema:
            self._schema = made.schema
            kind = made.schema.serialize().to_pybytes()
        results = made.serialize().to_pybytes() if made is not None else None
        return results, dict(failures) or None, list(spent), kind, done


def _sent(column: Any) -> Any:
    """A plain column as the engine takes it: numbers of numpy as bytes, everything else value by value."""
    if isinstance(column, list):
        return column
    return column.tolist() if column.dtype.hasobject else column.tobytes()
