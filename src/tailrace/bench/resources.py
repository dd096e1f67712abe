"""How much of the machine each part of a measurement took."""

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping

import psutil

_EVERY_S = 1.0


class Resources:
    """CPU and memory of named process trees, over a window.

    A process that ends within the window counts as far as it was last seen.
    """

    def __init__(self, roots: Mapping[str, int]) -> None:
        self._roots = roots
        self._at_begin: dict[str, dict[int, float]] = {}
        self._seen: dict[str, dict[int, float]] = {name: {} for name in roots}
        self._greatest: dict[str, int] = dict.fromkeys(roots, 0)
        self._begun = 0.0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="resources", daemon=True)

    def begin(self) -> None:
        """The window starts now."""
        self._begun = time.monotonic()
        for name, root in self._roots.items():
            self._at_begin[name] = {pid: cpu_s for pid, cpu_s, _ in _tree(root)}
        self._sampler.start()

    def end(self) -> dict[str, dict[str, float]]:
        """The window ends: mean cores in use and the greatest resident memory, by name."""
        took_s = time.monotonic() - self._begun
        self._look()
        self._ended.set()
        self._sampler.join()
        found = {}
        for name in self._roots:
            before = self._at_begin[name]
            cpu_s = sum(cpu - before.get(pid, 0.0) for pid, cpu in self._seen[name].items())
            found[name] = {"cpu_cores": round(cpu_s / took_s, 3), "rss_mb": round(self._greatest[name] / 2**20, 1)}
        return found

    def _sample(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        for name, root in self._roots.items():
            resident = 0
            for pid, cpu_s, rss in _tree(root):
                self._seen[name][pid] = cpu_s
                resident += rss
            self._greatest[name] = max(self._greatest[name], resident)


def _tree(root: int) -> Iterator[tuple[int, float, int]]:
    """Process, CPU seconds and resident bytes of a process and all below it."""
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(root)
        for process in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                yield process.pid, times.user + times.system, process.memory_info().rss
