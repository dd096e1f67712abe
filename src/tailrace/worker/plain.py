"""Plain batches: numbers without nulls, and strings, as numpy arrays or Python lists instead of Arrow.

Spark's worker takes columns in Arrow and converts every type. For few rows, that takes longer than most functions.
Plain columns need no conversion. Batches with other columns go through Spark's conversions.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class PlainBatch:
    """A batch of plain columns, with the methods of an Arrow batch that are used here."""

    def __init__(self, names: Sequence[str], columns: Sequence[Any]) -> None:
        self.names = names
        self.columns = columns
        self.num_rows = len(columns[0])

    def __len__(self) -> int:
        return self.num_rows

    def column(self, index: int) -> Any:
        """Return one of its columns."""
        return self.columns[index]

    def itercolumns(self) -> Iterator[Any]:
        """Iterate over its columns."""
        return iter(self.columns)

    def select(self, indices: Sequence[int]) -> "PlainBatch":
        """Return a batch of some columns."""
        return PlainBatch([self.names[index] for index in indices], [self.columns[index] for index in indices])

    def slice(self, start: int, length: int | None = None) -> "PlainBatch":
        """Return a batch of some rows."""
        end = self.num_rows if length is None else start + length
        return PlainBatch(self.names, [column[start:end] for column in self.columns])

    def to_arrow(self, *, nan_is_null: bool) -> "pa.RecordBatch":
        """Return the batch in Arrow. In the results of pandas functions NaN is null, as in Spark."""
        import pyarrow as pa

        columns = [_array(column, nan_is_null=nan_is_null) for column in self.columns]
        return pa.RecordBatch.from_arrays(columns, list(self.names))


class PlainFrame(PlainBatch):
    """A plain batch that stands for a frame, which Spark sends as one struct column."""

    def to_arrow(self, *, nan_is_null: bool) -> "pa.RecordBatch":
        """Return the batch in Arrow, as one struct column."""
        from pyspark.sql.conversion import ArrowBatchTransformer

        return ArrowBatchTransformer.wrap_struct(super().to_arrow(nan_is_null=nan_is_null))


def _array(column: Any, *, nan_is_null: bool) -> "pa.Array":
    import pyarrow as pa

    return pa.array(column, type=pa.string() if column.dtype.hasobject else None, from_pandas=nan_is_null)


class PlainValues(PlainBatch):
    """A plain batch of lists of Python values, the results of `@udf` with Arrow."""

    def __init__(self, names: Sequence[str], columns: Sequence[list[Any]], types: "Sequence[pa.DataType]") -> None:
        super().__init__(names, columns)
        self._types = types

    def to_arrow(self, *, nan_is_null: bool) -> "pa.RecordBatch":  # noqa: ARG002 - a NaN in a list stays NaN
        """Return the batch in Arrow."""
        import pyarrow as pa

        columns = [pa.array(values, type=kind) for values, kind in zip(self.columns, self._types, strict=True)]
        return pa.RecordBatch.from_arrays(columns, list(self.names))


def concat_batches(batches: Sequence[Any]) -> Any:
    """Return batches of results one after the other as one batch; plain if all of them are."""
    if len(batches) == 1:
        return batches[0]
    import numpy as np
    import pyarrow as pa

    if all(type(batch) is PlainBatch for batch in batches):
        columns = zip(*(batch.columns for batch in batches), strict=True)
        return PlainBatch(batches[0].names, [np.concatenate(column) for column in columns])
    arrow = [to_arrow(batch, nan_is_null=True) for batch in batches]
    if not arrow[0].schema.names:  # only a struct array can count rows without columns
        return pa.RecordBatch.from_struct_array(pa.array([{}] * sum(batch.num_rows for batch in arrow), pa.struct([])))
    columns = zip(*(batch.columns for batch in arrow), strict=True)
    schema = next((batch.schema for batch in batches if not isinstance(batch, PlainBatch)), arrow[0].schema)
    return pa.RecordBatch.from_arrays([pa.concat_arrays(column) for column in columns], schema=schema)


def combine_columns(batches: Sequence[Any]) -> Any:
    """Return batches of one result column each as one batch; plain if all of them are."""
    names = [f"_{number}" for number in range(len(batches))]
    if all(isinstance(batch, PlainBatch) for batch in batches):
        return PlainBatch(names, [batch.column(0) for batch in batches])
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([to_arrow(batch, nan_is_null=True).column(0) for batch in batches], names)


def to_arrow(batch: Any, *, nan_is_null: bool) -> "pa.RecordBatch":
    """Return a batch in Arrow, converted if it is plain."""
    return batch.to_arrow(nan_is_null=nan_is_null) if isinstance(batch, PlainBatch) else batch


class PlainReader:
    """Decodes the plain batches that the engine sends; their Arrow schema has the types."""

    def __init__(self, schema: "pa.Schema") -> None:
        import numpy as np

        self._names = schema.names
        self._dtypes = [_numpy_dtype(field.type) for field in schema]
        self._from_bytes, self._from_strings = np.frombuffer, np.array

    def batch(self, message: Sequence[Any]) -> PlainBatch:
        """Return a batch. Numbers are sent as bytes, strings as a list."""
        columns = [
            self._from_strings(values, dtype=object) if dtype is None else self._from_bytes(values, dtype=dtype)
            for values, dtype in zip(message, self._dtypes, strict=True)
        ]
        return PlainBatch(self._names, columns)


def _numpy_dtype(arrow_type: "pa.DataType") -> Any:
    import pyarrow as pa

    is_string = pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type)
    return None if is_string else arrow_type.to_pandas_dtype()


def are_valid_strings(values: Iterable[Any]) -> bool:
    """Return whether all values are strings or None, and can be encoded as UTF-8 (no lone surrogates)."""
    try:
        return all(each is None or (type(each) is str and (each.isascii() or each.encode())) for each in values)
    except UnicodeEncodeError:
        return False
