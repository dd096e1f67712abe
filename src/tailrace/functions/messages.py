"""Arrow batches as the engine sends and takes them: without the framing of a stream of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


END = b"\0"
"""There are no more batches."""


def reader(told: Mapping[str, Any]) -> "Callable[[bytes], pa.RecordBatch | None]":
    """Reads batches; None after the last."""
    import pyarrow as pa

    schema = pa.ipc.read_schema(pa.py_buffer(bytes(told["schema"])))
    return lambda message: None if message == END else pa.ipc.read_record_batch(pa.py_buffer(message), schema)


class Answers:
    """Answers to messages, of which the first tells of what kind they are."""

    def __init__(self) -> None:
        self._schema: Any = None

    def of(
        self, made: "pa.RecordBatch | None", failures: Mapping[int, str], spent: Sequence[int], done: int = 0
    ) -> tuple[Any, ...]:
        """What functions made, what went wrong with which row, and how long each function took.

        Where a function makes as many rows as it likes, `done` tells of how many it will not make any more.
        """
        kind = None
        if made is not None and made.schema != self._schema:
            self._schema = made.schema
            kind = made.schema.serialize().to_pybytes()
        results = made.serialize().to_pybytes() if made is not None else None
        return results, dict(failures) or None, list(spent), kind, done
