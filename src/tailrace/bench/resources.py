"""How much of the machine each part of a measurement took."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

import psutil

_EVERY_S = 5.0
"""Seldom, and without looking for new processes: whatever looks at the machine also takes of it, and a look at every
process there is, each second, showed in the slowest percent of the records."""


class Resources:
    """CPU and memory of named process trees, over a window.

    A process that ends within the window counts as far as it was last seen. One that starts within the window counts
    where it is still there at the end.
    """

    def __init__(self, roots: Mapping[str, Callable[[], int]]) -> None:
        """By name, what tells the root of a tree: a process that was killed and started again has another."""
        self._roots = roots
        self._known: dict[str, list[psutil.Process]] = {}
        self._at_begin: dict[str, dict[int, float]] = {}
        self._seen: dict[str, dict[int, float]] = {name: {} for name in roots}
        self._greatest: dict[str, int] = dict.fromkeys(roots, 0)
        self._begun = 0.0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="resources", daemon=True)

    def begin(self) -> None:
        """The window starts now."""
        self._begun = time.monotonic()
        self._find()
        self._look()
        self._at_begin = {name: dict(seen) for name, seen in self._seen.items()}
        self._sampler.start()

    def end(self) -> dict[str, dict[str, float]]:
        """The window ends: mean cores in use and the greatest resident memory, by name."""
        took_s = time.monotonic() - self._begun
        self._ended.set()
        self._sampler.join()
        self._find()
        self._look()
        found = {}
        for name in self._roots:
            before = self._at_begin[name]
            cpu_s = sum(cpu - before.get(pid, 0.0) for pid, cpu in self._seen[name].items())
            found[name] = {"cpu_cores": round(cpu_s / took_s, 3), "rss_mb": round(self._greatest[name] / 2**20, 1)}
        return found

    def _sample(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._look()

    def _find(self) -> None:
        """Which processes there are."""
        self._known = {name: _tree(root()) for name, root in self._roots.items()}

    def _look(self) -> None:
        for name, processes in self._known.items():
            resident = 0
            for process in processes:
                with contextlib.suppress(psutil.Error), process.oneshot():
                    times = process.cpu_times()
                    self._seen[name][process.pid] = times.user + times.system
                    resident += process.memory_info().rss
            self._greatest[name] = max(self._greatest[name], resident)


def _tree(root: int) -> list[psutil.Process]:
    """A process and all below it."""
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    return []
