import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tailrace.bench import resources as module
from tailrace.bench.resources import Resources, _tree

WaitUntil = Callable[[Callable[[], bool], str], None]
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE)
sys.stdin.read()
"""
MIB = 2**20

Tree = list[tuple[int, float, int]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    # The sampler would look by itself; here a test says when.
    monkeypatch.setattr(Resources, "_sample", lambda _: None)
    return at


def trees(monkeypatch: pytest.MonkeyPatch, found: dict[int, Tree]) -> None:
    def tree(root: int) -> Iterator[tuple[int, float, int]]:
        yield from found[root]

    monkeypatch.setattr(module, "_tree", tree)


def test_cores_are_the_cpu_time_of_the_window_over_its_length(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    found: dict[int, Tree] = {1: [(1, 50.0, 100 * MIB), (2, 7.0, 20 * MIB)], 9: [(9, 3.0, MIB)]}
    trees(monkeypatch, found)
    used = Resources({"engine": 1, "probe": 9})
    used.begin()
    clock[0] += 10
    found[1] = [(1, 55.0, 90 * MIB), (2, 8.0, 60 * MIB)]
    assert used.end() == {"engine": {"cpu_cores": 0.6, "rss_mb": 150.0}, "probe": {"cpu_cores": 0.0, "rss_mb": 1.0}}


def test_a_process_that_came_or_went_within_the_window_counts_as_far_as_it_was_seen(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    found: dict[int, Tree] = {1: [(1, 50.0, MIB)]}
    trees(monkeypatch, found)
    used = Resources({"engine": 1})
    used.begin()
    found[1] = [(1, 51.0, MIB), (3, 4.0, 9 * MIB)]
    used._look()
    clock[0] += 10
    found[1] = [(1, 52.0, MIB)]
    assert used.end() == {"engine": {"cpu_cores": 0.6, "rss_mb": 10.0}}


def test_a_tree_that_is_gone_has_nothing(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    trees(monkeypatch, {1: []})
    used = Resources({"engine": 1})
    used.begin()
    clock[0] += 1
    assert used.end() == {"engine": {"cpu_cores": 0.0, "rss_mb": 0.0}}


def test_a_real_tree_has_its_children_in_it(wait_until: WaitUntil) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"ready\n"
        tree = list(_tree(parent.pid))
        parent.stdin.close()
    assert len(tree) == 2
    assert tree[0][0] == parent.pid
    assert all(rss > MIB for _, _, rss in tree)
    assert list(_tree(parent.pid)) == [], "it is gone"


def test_this_process_uses_what_it_uses() -> None:
    used = Resources({"this": os.getpid()})
    used.begin()
    before = used._at_begin["this"][os.getpid()]
    while next(_tree(os.getpid()))[1] <= before:
        sum(range(1000))
    found = used.end()["this"]
    assert found["cpu_cores"] > 0
    assert found["rss_mb"] > 10
