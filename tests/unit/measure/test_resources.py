import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest

from tailrace.measure import process as module
from tailrace.measure.process import Resources, _tree
from tailrace.report.result import Usage

WaitUntil = Callable[[Callable[[], bool], str], None]
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "print('ready', flush=True); input()"], stdin=subprocess.PIPE)
sys.stdin.read()
"""
MIB = 2**20


class FakeProcess:
    def __init__(self, pid: int, cpu_s: float, rss: int) -> None:
        self.pid = pid
        self.cpu_s = cpu_s
        self.rss = rss

    def oneshot(self) -> nullcontext[None]:
        return nullcontext()

    def cpu_times(self) -> SimpleNamespace:
        if self.cpu_s < 0:
            raise psutil.NoSuchProcess(self.pid)
        return SimpleNamespace(user=self.cpu_s / 2, system=self.cpu_s / 2)

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(rss=self.rss)


Tree = list[FakeProcess]
P = FakeProcess


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    # The sampler would look by itself; here a test says when.
    monkeypatch.setattr(Resources, "_sample", lambda _: None)
    return at


def trees(monkeypatch: pytest.MonkeyPatch, by_root: dict[int, Tree]) -> None:
    monkeypatch.setattr(module, "_tree", lambda root: list(by_root[root]))


def test_cores_are_cpu_time_divided_by_the_window(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    by_root: dict[int, Tree] = {1: [P(1, 50.0, 100 * MIB), P(2, 7.0, 20 * MIB)], 9: [P(9, 3.0, MIB)]}
    trees(monkeypatch, by_root)
    used = Resources({"engine": lambda: 1, "probe": lambda: 9})
    used.begin()
    clock[0] += 10
    by_root[1] = [P(1, 55.0, 90 * MIB), P(2, 8.0, 60 * MIB)]
    assert used.end() == {"engine": Usage(0.6, 150.0), "probe": Usage(0.0, 1.0)}


def test_processes_that_end_or_start_in_the_window_count(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    stays, goes, comes = P(1, 50.0, MIB), P(3, 2.0, 9 * MIB), P(4, 1.5, MIB)
    by_root: dict[int, Tree] = {1: [stays, goes]}
    trees(monkeypatch, by_root)
    used = Resources({"engine": lambda: 1})
    used.begin()
    stays.cpu_s, goes.cpu_s = 51.0, 5.0
    used._sample_once()
    goes.cpu_s = -1
    used._sample_once()
    clock[0] += 10
    stays.cpu_s = 52.0
    by_root[1] = [stays, comes]
    assert used.end() == {"engine": Usage(0.65, 10.0)}


def test_a_restarted_process_counts(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    trees(monkeypatch, {1: [P(1, 50.0, MIB)], 2: [P(2, 4.0, MIB)]})
    roots = iter([1, 2])
    used = Resources({"engine": lambda: next(roots)})
    used.begin()
    clock[0] += 10
    assert used.end() == {"engine": Usage(0.4, 1.0)}


def test_processes_are_listed_only_at_the_edges_of_the_window(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    asked: list[int] = []

    def tree(root: int) -> Tree:
        asked.append(root)
        return [P(root, 1.0, MIB)]

    monkeypatch.setattr(module, "_tree", tree)
    used = Resources({"engine": lambda: 1})
    used.begin()
    used._sample_once()
    used._sample_once()
    assert asked == [1]
    clock[0] += 1
    used.end()
    assert asked == [1, 1]


def test_an_ended_tree_has_no_processes(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    trees(monkeypatch, {1: []})
    used = Resources({"engine": lambda: 1})
    used.begin()
    clock[0] += 1
    assert used.end() == {"engine": Usage(0.0, 0.0)}


def test_a_tree_includes_children(wait_until: WaitUntil) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        assert parent.stdout.readline() == b"ready\n"
        tree = _tree(parent.pid)
        resident = [process.memory_info().rss for process in tree]
        parent.stdin.close()
    assert len(tree) == 2
    assert tree[0].pid == parent.pid
    assert all(rss > MIB for rss in resident)
    assert _tree(parent.pid) == [], "it is gone"


def test_usage_of_a_real_process() -> None:
    used = Resources({"this": os.getpid})
    used.begin()
    before = used._at_begin["this"][os.getpid()]
    while sum(psutil.Process().cpu_times()[:2]) <= before:
        sum(range(1000))
    usage = used.end()["this"]
    assert usage.cpu_cores > 0
    assert usage.rss_mb > 10
