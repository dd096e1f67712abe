"""Converts plain columns to lists of Python values and back, for `@udf` with Arrow."""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.plain import PlainValues, are_valid_strings


def value_conversions() -> Mapping[str, Any]:
    """Return a replacement for Spark's conversion to values, by its name in the worker, for plain columns, too."""
    import numpy as np
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    def to_values(column: Any) -> Any:
        if isinstance(column, np.ndarray):
            return column.tolist()
        return ArrowTableToRowsConversion._to_pylist(column)  # noqa: SLF001 - as the worker's function calls it

    members = {"_to_pylist": staticmethod(to_values)}
    return {"ArrowTableToRowsConversion": type("ToValues", (ArrowTableToRowsConversion,), members)}


class PyArrowProxy:
    """Stands in for pyarrow when Spark's worker builds a batch of results, and keeps plain values as a list."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._arrow = pa
        self._plain_checks: dict[Any, Callable[[list[Any]], bool]] = {
            pa.float64(): lambda values: all(each is None or type(each) is float for each in values),
            pa.bool_(): lambda values: all(each is None or type(each) is bool for each in values),
            pa.string(): are_valid_strings,
            **{pa.type_for_alias(f"int{bits}"): _fit_into(bits) for bits in (8, 16, 32, 64)},
        }
        self.lib = pa.lib
        self.RecordBatch = self

    def array(self, values: list[Any], type: Any = None) -> Any:  # noqa: A002 - pyarrow's name
        """Return a plain column if all values are plain, else an Arrow array."""
        are_plain = self._plain_checks.get(type)
        if are_plain is None or not are_plain(values):
            return self._arrow.array(values, type=type)
        return PlainValues(["_0"], [values], [type])

    def from_arrays(self, columns: list[Any], names: list[str]) -> Any:
        """Return a batch of one function's results."""
        (column,) = columns
        return column if isinstance(column, PlainValues) else self._arrow.RecordBatch.from_arrays(columns, names)


def _fit_into(bits: int) -> Callable[[list[Any]], bool]:
    limit = 2 ** (bits - 1)
    return lambda values: all(each is None or (type(each) is int and -limit <= each < limit) for each in values)
