"""Frames from blocks are equal to frames from pandas' constructor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailrace.worker.frame_builder import BlockFrameBuilder, FrameBuilder, fastest_frame_builder

COLUMNS = {
    "double": np.array([1.5, np.nan]),
    "long": np.array([1, 2**62]),
    "boolean": np.array([True, False]),
    "text": np.array(["a", None], dtype=object),
    "no rows": np.array([], dtype="float64"),
}


def test_the_fast_builder_works_with_the_installed_pandas() -> None:
    assert isinstance(fastest_frame_builder(), BlockFrameBuilder)


@pytest.mark.parametrize("name", COLUMNS)
def test_frames_are_the_same(name: str) -> None:
    fast, default = BlockFrameBuilder(), FrameBuilder()
    for names in (["a", "b"], ["b", "a", "c"]):
        columns = [COLUMNS[name].copy() for _ in names]
        result = fast.frame(names, columns)
        pd.testing.assert_frame_equal(result, default.frame(names, columns))
        assert [*fast.columns(result)] == [*default.columns(result)] == names


def test_frames_can_be_changed() -> None:
    builder = BlockFrameBuilder()
    frame = builder.frame(["a", "b"], [np.array([1, 2]), np.array([3, 4])])
    frame.columns.name = "changed"
    frame["c"] = frame["a"] + frame.pop("b")
    frame.loc[1, "a"] = 9
    assert frame.to_dict("list") == {"a": [1, 9], "c": [4, 6]}
    assert builder.frame(["a", "b"], [np.array([1]), np.array([2])]).columns.name is None


@pytest.mark.parametrize("broken", ["missing", "another"])
def test_with_another_pandas_the_public_constructor_is_used(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(self: BlockFrameBuilder, names: Sequence[str], columns: Sequence[Any]) -> Any:
        return FrameBuilder.frame(self, names, [column.astype("object") for column in columns])

    if broken == "missing":
        monkeypatch.delattr("pandas.core.internals.managers.BlockManager")
    else:
        monkeypatch.setattr(BlockFrameBuilder, "frame", another)
    assert type(fastest_frame_builder()) is FrameBuilder
