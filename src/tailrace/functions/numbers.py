"""A short way for `@pandas_udf` on plain numbers.

Spark's worker converts any type to pandas and back, which takes longer than most functions where a call has few rows.
Numbers without nulls need none of it: their memory is the same on both sides. Everything else goes Spark's way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = {
    "double": "float64",
    "float": "float32",
    "long": "int64",
    "integer": "int32",
    "short": "int16",
    "byte": "int8",
}
"""By Spark's name for the type, pandas' name for it."""


class Numbers:
    """A function of numbers that makes a number."""

    def __init__(self, call: Callable[..., Any], offsets: list[int], returns: str) -> None:
        self._call = call
        self._offsets = offsets
        self._dtype = _PLAIN[returns]
        self.holds = True
        """Whether the function made what it declares, so far."""

    @staticmethod
    def can(inputs: list[str], returns: str) -> bool:
        """Whether types, by Spark's names, are plain numbers."""
        return bool(inputs) and {*inputs, returns} <= _PLAIN.keys()

    def over(self, batch: "pa.RecordBatch") -> "pa.Array | None":
        """The results, or None where they are not plain, and have to be made Spark's way."""
        import pandas as pd
        import pyarrow as pa

        if any(batch.column(at).null_count for at in self._offsets):
            return None
        given = []
        for at in self._offsets:
            series = batch.column(at).to_pandas()
            series.name = batch.schema.names[at]
            given.append(series)
        made = self._call(*given)
        if type(made) is not pd.Series or made.dtype != self._dtype or len(made) != batch.num_rows:
            self.holds = False  # it is called again for this batch, and never so any more
            return None
        return pa.Array.from_pandas(made)  # not a number is null, as Spark has it
