"""Frames of numpy's arrays.

Where there are few rows, pandas' constructor looks at what it gets for longer than most functions compute. What it
comes to in the end can be had at once, but is pandas' own affair: where it does not give what the constructor gives, it
is left alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any


def frame_maker() -> "Frames":
    """The quicker one, if it works with this pandas."""
    public = Frames()
    try:
        quick = FramesOfBlocks()
        works = all(quick.makes_the_same_as(public, column) for column in _samples())
    except Exception:  # noqa: BLE001 - whatever becomes of another version's insides
        return public
    return quick if works else public


def _samples() -> list[Any]:
    import numpy as np

    kinds = ("float64", "float32", "int64", "int32", "int16", "int8", "bool")
    numbers = [np.array([1, 0], dtype=kind) for kind in kinds]
    return [*numbers, np.array(["a", None], dtype=object), np.array([], dtype="float64")]


class Frames:
    """Makes frames as everybody does."""

    def __init__(self) -> None:
        import pandas as pd

        self._pandas = pd

    def frame(self, names: Sequence[str], columns: Sequence[Any]) -> Any:
        """Columns as a frame."""
        return self._pandas.DataFrame(dict(zip(names, columns, strict=True)), copy=False)

    def columns(self, frame: Any) -> Mapping[Any, Any]:
        """The columns of a frame, by their names."""
        return {name: series.values for name, series in frame.items()}


class FramesOfBlocks(Frames):
    """Makes them of blocks, which is what pandas keeps columns in."""

    def __init__(self) -> None:
        super().__init__()
        from pandas._libs.internals import BlockPlacement
        from pandas.core.internals.blocks import new_block
        from pandas.core.internals.managers import BlockManager

        self._placement, self._block, self._manager = BlockPlacement, new_block, BlockManager
        self._names: Sequence[str] = ()
        self._index: Any = None
        self._places: list[Any] = []

    def frame(self, names: Sequence[str], columns: Sequence[Any]) -> Any:
        """Columns as a frame."""
        if names != self._names:  # those of the last frame are most likely those of the next
            self._names, self._index = names, self._pandas.Index(names)
            self._places = [self._placement(slice(at, at + 1)) for at in range(len(names))]
        blocks = tuple(
            self._block(column.reshape(1, -1), place, ndim=2)
            for column, place in zip(columns, self._places, strict=True)
        )
        axes = [self._index.view(), self._pandas.RangeIndex(len(columns[0]))]
        kept = self._manager(blocks, axes, verify_integrity=False)
        return self._pandas.DataFrame._from_mgr(kept, kept.axes)  # noqa: SLF001

    def columns(self, frame: Any) -> Mapping[Any, Any]:
        """The columns of a frame, by their names."""
        return dict(zip(frame.columns, frame._iter_column_arrays(), strict=True))  # noqa: SLF001

    def makes_the_same_as(self, other: Frames, column: Any) -> bool:
        """Whether it does with such columns."""
        left, right = (each.frame(["a", "b"], [column.copy(), column.copy()]) for each in (self, other))
        kept, same = self.columns(left), other.columns(right)
        return bool(
            left.equals(right)
            and left.columns.equals(right.columns)
            and left.index.equals(right.index)
            and [*left.dtypes] == [*right.dtypes]
            and [*kept] == [*same]
            and all(type(kept[name]) is type(same[name]) and kept[name].dtype == same[name].dtype for name in same)
        )
