"""Frames that are made of blocks are those that pandas' constructor makes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tailrace.worker.blocks import Frames, FramesOfBlocks, frame_maker

COLUMNS = {
    "double": np.array([1.5, np.nan]),
    "long": np.array([1, 2**62]),
    "boolean": np.array([True, False]),
    "text": np.array(["a", None], dtype=object),
    "no rows": np.array([], dtype="float64"),
}


def test_this_pandas_lets_it() -> None:
    assert isinstance(frame_maker(), FramesOfBlocks)


@pytest.mark.parametrize("name", COLUMNS)
def test_frames_are_the_same(name: str) -> None:
    quick, public = FramesOfBlocks(), Frames()
    for names in (["a", "b"], ["b", "a", "c"]):
        columns = [COLUMNS[name].copy() for _ in names]
        made = quick.frame(names, columns)
        pd.testing.assert_frame_equal(made, public.frame(names, columns))
        assert [*quick.columns(made)] == [*public.columns(made)] == names


def test_they_can_be_changed_like_any_other() -> None:
    make = FramesOfBlocks()
    frame = make.frame(["a", "b"], [np.array([1, 2]), np.array([3, 4])])
    frame.columns.name = "changed"
    frame["c"] = frame["a"] + frame.pop("b")
    frame.loc[1, "a"] = 9
    assert frame.to_dict("list") == {"a": [1, 9], "c": [4, 6]}
    assert make.frame(["a", "b"], [np.array([1]), np.array([2])]).columns.name is None


@pytest.mark.parametrize("broken", ["missing", "another"])
def test_a_pandas_that_does_it_in_another_way_is_left_alone(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def another(self: FramesOfBlocks, names: Sequence[str], columns: Sequence[Any]) -> Any:
        return Frames.frame(self, names, [column.astype("object") for column in columns])

    if broken == "missing":
        monkeypatch.delattr("pandas.core.internals.managers.BlockManager")
    else:
        monkeypatch.setattr(FramesOfBlocks, "frame", another)
    assert type(frame_maker()) is Frames
