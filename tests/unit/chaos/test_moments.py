import random
from pathlib import Path

import pytest

from tailrace.chaos.moments import BoundaryWatch, Phase, random_moments

Calls = list[tuple[float, str]]


def watch(folder: Path, phase: Phase, interval_s: float = 10.0) -> BoundaryWatch:
    return BoundaryWatch(folder, phase, interval_s, random.Random(1))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").touch()
    return tmp_path


def test_each_part_of_a_load_has_one_moment() -> None:
    moments = random_moments(4, 60, random.Random(3))
    assert [int(moment // 15) for moment in moments] == [0, 1, 2, 3]
    assert random_moments(0, 60, random.Random(3)) == []


def test_between_offsets_and_commit(checkpoint: Path) -> None:
    boundary = watch(checkpoint, Phase.BETWEEN)
    assert not boundary.is_due(0)
    (checkpoint / "offsets" / "1").touch()
    assert boundary.is_due(1)


def test_a_boundary_that_passed_too_fast_does_not_count(checkpoint: Path) -> None:
    boundary = watch(checkpoint, Phase.BETWEEN)
    (checkpoint / "offsets" / "1").touch()
    (checkpoint / "commits" / "1").touch()
    assert not boundary.is_due(1)
    (checkpoint / "offsets" / ".2.tmp").touch()
    assert not boundary.is_due(2)
    (checkpoint / "offsets" / "2").touch()
    assert boundary.is_due(3)


def test_shortly_after_the_commit(checkpoint: Path) -> None:
    boundary = watch(checkpoint, Phase.AFTER)
    assert not boundary.is_due(100)
    (checkpoint / "commits" / "1").touch()
    boundary.is_due(101)
    assert boundary.is_due(101.3)


def test_shortly_before_the_next_boundary(checkpoint: Path) -> None:
    boundary = watch(checkpoint, Phase.BEFORE)
    (checkpoint / "commits" / "1").touch()
    assert not boundary.is_due(100)
    assert not boundary.is_due(109.7)
    assert boundary.is_due(110)


def test_a_checkpoint_that_is_not_there_yet(tmp_path: Path) -> None:
    boundary = watch(tmp_path / "none", Phase.AFTER)
    assert not boundary.is_due(1)
