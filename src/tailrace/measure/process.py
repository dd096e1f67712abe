"""The process of a lane's engine, and how much of the machine each process takes."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

import psutil

from tailrace.errors import MeasurementFailed
from tailrace.measure.lane import Command
from tailrace.report.result import Usage
from tailrace.toolchain.guarded_process import GuardedProcess

_GRACE_S = 10.0
_SHOWN_LINES = 30


class LaneProcess:
    """The process of a lane's engine. It ends with the benchmark, even if that is killed."""

    def __init__(self, lane: str, command: Command, log: Path) -> None:
        self.lane = lane
        self._log = log
        with log.open("wb") as output:
            self._process = GuardedProcess(
                command.argv, output=output, grace_s=_GRACE_S, env={**os.environ, **command.env}
            )

    @property
    def pid(self) -> int:
        """The id of the root of its process tree."""
        return self._process.pid

    def require_running(self) -> None:
        """Check that it still runs.

        Raises:
            MeasurementFailed: It ended by itself.
        """
        code = self._process.poll()
        if code is None:
            return
        printed = self._log.read_text(errors="replace").splitlines()
        raise MeasurementFailed(
            f"lane {self.lane} ended by itself with exit code {code}",
            why=_error_line(printed),
            fix="see its last lines in the report",
            detail="\n".join(printed[-_SHOWN_LINES:]),
        )

    def kill(self) -> None:
        """Kill it and its children, as in a crash."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.kill()
        self._process.stop()

    def stop(self) -> None:
        """Stop it."""
        self._process.stop(timeout_s=_GRACE_S + 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class KilledOnce:
    """A lane's engine that is killed in the middle of a run and started again on its checkpoint."""

    def __init__(self, start: Callable[[int], LaneProcess], kill_at: Callable[[], float]) -> None:
        """Start it.

        Args:
            start: Starts the process, for the first or the second time.
            kill_at: The moment to kill it, on the monotonic clock; infinite until it is known.
        """
        self._start = start
        self._kill_at = kill_at
        self._process = start(1)
        self.killed_ns: int | None = None

    @property
    def pid(self) -> int:
        """The id of the root of its process tree."""
        return self._process.pid

    def require_running(self) -> None:
        """Kill it and start it again if it is time; check that it runs otherwise."""
        if self.killed_ns is None and time.monotonic() >= self._kill_at():
            self._process.kill()
            self.killed_ns = time.time_ns()
            self._process = self._start(2)
        self._process.require_running()

    def stop(self) -> None:
        """Stop it."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _error_line(printed: list[str]) -> str:
    """Return the last line that names an error, or else the last line."""
    lines = [line.strip() for line in printed if line.strip()]
    errors = [line for line in lines if "Error" in line or "Exception" in line or line.startswith("error:")]
    chosen = errors or lines
    return chosen[-1][:300] if chosen else "it printed nothing"


_EVERY_S = 5.0
"""Not often, and without listing new processes: listing all processes every second raised the p99."""


class Resources:
    """CPU and memory of named process trees, over a window.

    A process that ends within the window counts up to its last sample. One that starts within the window counts if
    it still runs at the end.
    """

    def __init__(self, roots: Mapping[str, Callable[[], int]]) -> None:
        """Take a function per name that returns the root of a tree: a restarted process has another id."""
        self._roots = roots
        self._known: dict[str, list[psutil.Process]] = {}
        self._at_begin: dict[str, dict[int, float]] = {}
        self._seen: dict[str, dict[int, float]] = {name: {} for name in roots}
        self._greatest: dict[str, int] = dict.fromkeys(roots, 0)
        self._begun = 0.0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="resources", daemon=True)

    def begin(self) -> None:
        """Start the window."""
        self._begun = time.monotonic()
        self._find()
        self._sample_once()
        self._at_begin = {name: dict(seen) for name, seen in self._seen.items()}
        self._sampler.start()

    def end(self) -> dict[str, Usage]:
        """End the window; return the mean cores and the largest resident memory by name."""
        took_s = time.monotonic() - self._begun
        self._ended.set()
        self._sampler.join()
        self._find()
        self._sample_once()
        used = {}
        for name in self._roots:
            before = self._at_begin[name]
            cpu_s = sum(cpu - before.get(pid, 0.0) for pid, cpu in self._seen[name].items())
            used[name] = Usage(round(cpu_s / took_s, 3), round(self._greatest[name] / 2**20, 1))
        return used

    def _sample(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._sample_once()

    def _find(self) -> None:
        """List the processes of every tree."""
        self._known = {name: _tree(root()) for name, root in self._roots.items()}

    def _sample_once(self) -> None:
        for name, processes in self._known.items():
            resident = 0
            for process in processes:
                with contextlib.suppress(psutil.Error), process.oneshot():
                    times = process.cpu_times()
                    self._seen[name][process.pid] = times.user + times.system
                    resident += process.memory_info().rss
            self._greatest[name] = max(self._greatest[name], resident)


def _tree(root: int) -> list[psutil.Process]:
    """Return a process and its descendants."""
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(root)
        return [top, *top.children(recursive=True)]
    return []
