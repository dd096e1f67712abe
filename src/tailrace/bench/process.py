"""The process of a lane's engine."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from tailrace.bench.lane import Command
from tailrace.errors import MeasurementFailed
from tailrace.toolchain.guarded_process import GuardedProcess

_GRACE_S = 10.0
_SHOWN_LINES = 30


class LaneProcess:
    """A lane's engine while it runs. It is gone when the benchmark is, however that ends."""

    def __init__(self, lane: str, command: Command, log: Path) -> None:
        self.lane = lane
        self._log = log
        with log.open("wb") as output:
            self._process = GuardedProcess(
                command.argv, output=output, grace_s=_GRACE_S, env={**os.environ, **command.env}
            )

    @property
    def pid(self) -> int:
        """The root of its process tree."""
        return self._process.pid

    def require_running(self) -> None:
        """See that it still runs.

        Raises:
            MeasurementFailed: It ended by itself.
        """
        code = self._process.poll()
        if code is None:
            return
        printed = self._log.read_text(errors="replace").splitlines()
        raise MeasurementFailed(
            f"lane {self.lane} ended by itself with exit code {code}",
            why=_telling_line(printed),
            fix="the report shows the last lines that it printed",
            detail="\n".join(printed[-_SHOWN_LINES:]),
        )

    def kill(self) -> None:
        """End it as a crash would: at once and without a word."""
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                child.kill()
        self._process.stop()

    def stop(self) -> None:
        """End it."""
        self._process.stop(timeout_s=_GRACE_S + 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class KilledOnce:
    """A lane's engine that is killed in the middle of a run and started again on what it had saved."""

    def __init__(self, start: Callable[[int], LaneProcess], kill_at: Callable[[], float]) -> None:
        """Start it.

        Args:
            start: Starts the process, for the first or the second time.
            kill_at: The moment to kill it, on the monotonic clock; infinite as long as it is not known.
        """
        self._start = start
        self._kill_at = kill_at
        self._process = start(1)
        self.killed_ns: int | None = None

    @property
    def pid(self) -> int:
        """The root of its process tree."""
        return self._process.pid

    def require_running(self) -> None:
        """Kill it when its time has come; see that it runs otherwise."""
        if self.killed_ns is None and time.monotonic() >= self._kill_at():
            self._process.kill()
            self.killed_ns = time.time_ns()
            self._process = self._start(2)
        self._process.require_running()

    def stop(self) -> None:
        """End it."""
        self._process.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _telling_line(printed: list[str]) -> str:
    """The line that most likely says what went wrong: the last that names an error, else the last."""
    told = [line.strip() for line in printed if line.strip()]
    errors = [line for line in told if "Error" in line or "Exception" in line or line.startswith("error:")]
    chosen = errors or told
    return chosen[-1][:300] if chosen else "it printed nothing"
