"""Builds pandas frames from numpy arrays.

For few rows, the checks in pandas' constructor take longer than most functions. The fast builder calls pandas'
internals instead. It is used only if it gives the same frames as the constructor with the installed pandas.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def fastest_frame_builder() -> "FrameBuilder":
    """Return the fast builder if it works with the installed pandas, else the default one."""
    default = FrameBuilder()
    try:
        fast = BlockFrameBuilder()
        works = all(fast.matches(default, column) for column in _samples())
    except Exception:  # noqa: BLE001 - the internals of another version may raise anything
        return default
    return fast if works else default


def _samples() -> list[Any]:
    import numpy as np

    dtypes = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")
    numbers = [np.array([1, 0], dtype=dtype) for dtype in dtypes]
    return [*numbers, np.array(["a", None], dtype=object), np.array([], dtype="float64")]


class FrameBuilder:
    """Builds frames with pandas' public constructor."""

    def __init__(self) -> None:
        import pandas as pd

        self._pandas = pd

    def frame(self, names: Sequence[str], columns: Sequence[Any]) -> Any:
        """Return the columns as a frame."""
        return self._pandas.DataFrame(dict(zip(names, columns, strict=True)), copy=False)

    def columns(self, frame: Any) -> Mapping[Any, Any]:
        """Return the columns of a frame by their names."""
        return {name: series.values for name, series in frame.items()}


class BlockFrameBuilder(FrameBuilder):
    """Builds frames from pandas' internal blocks."""

    def __init__(self) -> None:
        super().__init__()
        from pandas._libs.internals import BlockPlacement
        from pandas.core.internals.blocks import new_block
        from pandas.core.internals.managers import BlockManager

        self._placement, self._block, self._manager = BlockPlacement, new_block, BlockManager
        self._names: Sequence[str] = ()
        self._index: Any = None
        self._placements: list[Any] = []

    def frame(self, names: Sequence[str], columns: Sequence[Any]) -> Any:
        """Return the columns as a frame."""
        if names != self._names:  # consecutive frames mostly have the same names
            self._names, self._index = names, self._pandas.Index(names)
            self._placements = [self._placement(slice(number, number + 1)) for number in range(len(names))]
        blocks = tuple(
            self._block(column.reshape(1, -1), placement, ndim=2)
            for column, placement in zip(columns, self._placements, strict=True)
        )
        axes = [self._index.view(), self._pandas.RangeIndex(len(columns[0]))]
        manager = self._manager(blocks, axes, verify_integrity=False)
        return self._pandas.DataFrame._from_mgr(manager, manager.axes)  # noqa: SLF001

    def columns(self, frame: Any) -> Mapping[Any, Any]:
        """Return the columns of a frame by their names."""
        return dict(zip(frame.columns, frame._iter_column_arrays(), strict=True))  # noqa: SLF001

    def matches(self, other: FrameBuilder, column: Any) -> bool:
        """Return whether both builders give the same frame for such a column."""
        left, right = (each.frame(["a", "b"], [column.copy(), column.copy()]) for each in (self, other))
        own, expected = self.columns(left), other.columns(right)
        return bool(
            left.equals(right)
            and left.columns.equals(right.columns)
            and left.index.equals(right.index)
            and [*left.dtypes] == [*right.dtypes]
            and [*own] == [*expected]
            and all(
                type(own[name]) is type(expected[name]) and own[name].dtype == expected[name].dtype for name in expected
            )
        )
