"""Plain columns as lists of what Python has, there and back: for a function on single rows, `@udf` with Arrow."""

from collections.abc import Callable, Mapping
from typing import Any

from tailrace.worker.plain import PlainValues, are_texts


def values() -> Mapping[str, Any]:
    """Spark's conversion to values, by the name under which its worker knows it, with a short way in front."""
    import numpy as np
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    def to_values(column: Any) -> Any:
        if isinstance(column, np.ndarray):
            return column.tolist()
        return ArrowTableToRowsConversion._to_pylist(column)  # noqa: SLF001 - as the worker's function calls it

    of_plain = {"_to_pylist": staticmethod(to_values)}
    return {"ArrowTableToRowsConversion": type("ToValues", (ArrowTableToRowsConversion,), of_plain)}


class PlainArrow:
    """What Spark's worker uses of pyarrow to make a batch of values; those that are plain stay as they are."""

    def __init__(self) -> None:
        import pyarrow as pa

        self._arrow = pa
        self._are_plain: dict[Any, Callable[[list[Any]], bool]] = {
            pa.float64(): lambda made: all(each is None or type(each) is float for each in made),
            pa.bool_(): lambda made: all(each is None or type(each) is bool for each in made),
            pa.string(): are_texts,
            **{pa.type_for_alias(f"int{bits}"): _are_whole(bits) for bits in (8, 16, 32, 64)},
        }
        self.lib = pa.lib
        self.RecordBatch = self

    def array(self, made: list[Any], type: Any = None) -> Any:  # noqa: A002 - as pyarrow has it
        """A column, in Arrow unless it is plain."""
        are_plain = self._are_plain.get(type)
        if are_plain is None or not are_plain(made):
            return self._arrow.array(made, type=type)
        return PlainValues(["_0"], [made], [type])

    def from_arrays(self, columns: list[Any], names: list[str]) -> Any:
        """A batch of one function's results."""
        (column,) = columns
        return column if isinstance(column, PlainValues) else self._arrow.RecordBatch.from_arrays(columns, names)


def _are_whole(bits: int) -> Callable[[list[Any]], bool]:
    most = 2 ** (bits - 1)
    return lambda made: all(each is None or (type(each) is int and -most <= each < most) for each in made)
