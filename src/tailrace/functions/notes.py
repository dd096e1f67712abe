"""What the engine is told beside the results of a stream."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

ADDED = ("__tailrace_failure", "__tailrace_spent", "__tailrace_done")
"""Columns of an answer before those that functions make."""


def with_notes(made: "pa.Array", failure: str | None, spent: int) -> "pa.RecordBatch":
    """Results of a function, how long it took for them, and what went wrong where it is a single row."""
    import pyarrow as pa

    rest = len(made) - 1
    notes = [in_first_row(failure, rest), in_first_row(str(spent), rest), in_first_row(None, rest)]
    return pa.RecordBatch.from_arrays([*notes, made], [*ADDED, "_0"])


def in_first_row(text: str | None, more: int) -> "pa.Array":
    """A note in the first row."""
    import pyarrow as pa

    return pa.array([text] + [None] * more, pa.string()) if more >= 0 else pa.nulls(0, pa.string())
