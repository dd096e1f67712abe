"""A short way between the engine and functions for plain columns: numbers without nulls, and text.

Spark's worker takes columns in Arrow and converts any type there is, which takes longer than most functions where a
call has few rows. Plain columns come and go as numpy or Python has them. Everything else goes Spark's way, batch by
batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class PlainBatch:
    """A batch of plain columns, where Spark's worker has one of Arrow."""

    def __init__(self, names: Sequence[str], columns: Sequence[Any]) -> None:
        self.names = names
        self.columns = columns
        self.num_rows = len(columns[0])

    def __len__(self) -> int:
        return self.num_rows

    def column(self, at: int) -> Any:
        """One of its columns."""
        return self.columns[at]

    def itercolumns(self) -> Iterator[Any]:
        """All of them."""
        return iter(self.columns)

    def select(self, places: Sequence[int]) -> "PlainBatch":
        """Some of its columns."""
        return PlainBatch([self.names[at] for at in places], [self.columns[at] for at in places])

    def slice(self, start: int, length: int | None = None) -> "PlainBatch":
        """Some of its rows."""
        end = self.num_rows if length is None else start + length
        return PlainBatch(self.names, [column[start:end] for column in self.columns])

    def to_arrow(self, *, made: bool) -> "pa.RecordBatch":
        """The same in Arrow. In what functions made, not a number is null, as Spark has it."""
        import pyarrow as pa

        columns = [_array(column, made=made) for column in self.columns]
        return pa.RecordBatch.from_arrays(columns, list(self.names))


class PlainFrame(PlainBatch):
    """One whose columns are those of a frame."""

    def to_arrow(self, *, made: bool) -> "pa.RecordBatch":
        """All columns in one, as Spark has a frame."""
        from pyspark.sql.conversion import ArrowBatchTransformer

        return ArrowBatchTransformer.wrap_struct(super().to_arrow(made=made))


def _array(column: Any, *, made: bool) -> "pa.Array":
    import pyarrow as pa

    return pa.array(column, type=pa.string() if column.dtype.hasobject else None, from_pandas=made)


class PlainValues(PlainBatch):
    """One whose columns are lists of what Python has for their types in Arrow: of a function on single rows."""

    def __init__(self, names: Sequence[str], columns: Sequence[list[Any]], kinds: "Sequence[pa.DataType]") -> None:
        super().__init__(names, columns)
        self._kinds = kinds

    def to_arrow(self, *, made: bool) -> "pa.RecordBatch":  # noqa: ARG002 - not a number is one
        """The same in Arrow."""
        import pyarrow as pa

        columns = [pa.array(values, type=kind) for values, kind in zip(self.columns, self._kinds, strict=True)]
        return pa.RecordBatch.from_arrays(columns, list(self.names))


def joined(batches: Sequence[Any]) -> Any:
    """Batches that functions made, one after the other: plain if all of them are."""
    if len(batches) == 1:
        return batches[0]
    import numpy as np
    import pyarrow as pa

    if all(type(batch) is PlainBatch for batch in batches):
        columns = zip(*(batch.columns for batch in batches), strict=True)
        return PlainBatch(batches[0].names, [np.concatenate(column) for column in columns])
    arrow = [in_arrow(batch, made=True) for batch in batches]
    if not arrow[0].schema.names:  # rows without columns, which only a struct can count
        return pa.RecordBatch.from_struct_array(pa.array([{}] * sum(batch.num_rows for batch in arrow), pa.struct([])))
    columns = zip(*(batch.columns for batch in arrow), strict=True)
    schema = next((batch.schema for batch in batches if not isinstance(batch, PlainBatch)), arrow[0].schema)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column) for column in columns], schema=schema)


def beside(batches: Sequence[Any]) -> Any:
    """Batches of one column that functions made, side by side: plain if all of them are."""
    names = [f"_{number}" for number in range(len(batches))]
    if all(isinstance(batch, PlainBatch) for batch in batches):
        return PlainBatch(names, [batch.column(0) for batch in batches])
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([in_arrow(batch, made=True).column(0) for batch in batches], names)


def in_arrow(batch: Any, *, made: bool) -> "pa.RecordBatch":
    """A batch in Arrow, whatever it is in; functions may have made it."""
    return batch.to_arrow(made=made) if isinstance(batch, PlainBatch) else batch


class PlainReader:
    """Makes batches of what the engine sends, by the batches' kind in Arrow."""

    def __init__(self, schema: "pa.Schema") -> None:
        import numpy as np

        self._names = schema.names
        self._kinds = [_numpy_type(field.type) for field in schema]
        self._from_bytes, self._from_texts = np.frombuffer, np.array

    def batch(self, message: Sequence[Any]) -> PlainBatch:
        """A batch: numbers come as bytes, texts one by one."""
        columns = [
            self._from_texts(values, dtype=object) if kind is None else self._from_bytes(values, dtype=kind)
            for values, kind in zip(message, self._kinds, strict=True)
        ]
        return PlainBatch(self._names, columns)


def _numpy_type(kind: "pa.DataType") -> Any:
    import pyarrow as pa

    return None if pa.types.is_string(kind) or pa.types.is_large_string(kind) else kind.to_pandas_dtype()


def are_texts(values: Iterable[Any]) -> bool:
    """Whether these are texts that can be sent, or nothing: half of a surrogate pair is none."""
    try:
        return all(each is None or (type(each) is str and (each.isascii() or each.encode())) for each in values)
    except UnicodeEncodeError:
        return False
