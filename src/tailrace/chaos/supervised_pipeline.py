"""A pipeline in a process of its own that is started again whenever it ends, as a supervisor such as systemd does."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from tailrace.chaos.pipeline_process import STOP_TIMEOUT_S, Settings
from tailrace.errors import RecoveryFailed
from tailrace.toolchain.guarded_process import GuardedProcess

_GRACE_S = 20.0
_PAUSE_S = 1.0
"""Delay before a restart if the last start failed."""
_MOST_FAILED_STARTS = 5
"""How many starts in a row may fail, unless a fault lasts."""
_SHOWN_LINES = 30
NOT_STARTED = "the pipeline did not start"
_DAEMON, _EXECUTOR = "pyspark.daemon", "CoarseGrainedExecutorBackend"


@dataclass
class _Start:
    """One process of the pipeline."""

    number: int
    process: GuardedProcess
    log: Path
    events: Path

    def event(self, name: str) -> dict[str, Any] | None:
        """Return an event that the process has reported."""
        return _event(self.events, name)


class SupervisedPipeline:
    """A pipeline that is started again whenever it ends."""

    def __init__(
        self, settings: Settings, logs: Path, enter: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """Start it.

        Args:
            settings: What it runs.
            logs: The folder for the output of each start.
            enter: The beginning of its command line, if it runs on a small disk.
            env: Its environment; that of this program by default.
        """
        self.settings = settings
        self.tolerates_failures = False
        """Whether a fault lasts during which starts fail."""
        self._logs = logs
        self._enter = list(enter)
        self._env = dict(os.environ if env is None else env)
        self._failed_starts = 0
        self._start_at: float | None = None
        """When to start it again, if it has ended."""
        self._left: set[psutil.Process] = set()
        """Processes of earlier starts, which may outlive a killed parent for a moment."""
        logs.mkdir(parents=True, exist_ok=True)
        self._current = self._start(1 + len(_in_order(logs, "log")))

    @property
    def starts(self) -> int:
        """The number of the current start."""
        return self._current.number

    @property
    def is_running(self) -> bool:
        """Whether its query runs."""
        return self._current.process.poll() is None and self._current.event("running") is not None

    def watch(self) -> None:
        """Start it again if it has ended.

        Raises:
            RecoveryFailed: It ends again and again.
        """
        if self._start_at is None:
            if self._current.process.poll() is None or self.event("compared") is not None:
                return
            ran = self._current.event("running") is not None
            self._failed_starts = 0 if ran or self.tolerates_failures else self._failed_starts + 1
            self._require_hope()
            self._start_at = time.monotonic() + (0.0 if ran else _PAUSE_S)
        if time.monotonic() >= self._start_at:
            self._start_at = None
            self._current.process.stop()  # it has ended; this closes the pipe to its guard
            self._current = self._start(self._current.number + 1)

    def driver(self) -> psutil.Process | None:
        """Return its Python driver."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return next(iter(_children(psutil.Process(self._current.process.pid))), None)
        return None

    def jvm(self) -> psutil.Process | None:
        """Return its driver's JVM."""
        driver = self.driver()
        children = _children(driver) if driver is not None else []
        return next((each for each in children if _name(each).startswith("java")), None)

    def executors(self) -> list[psutil.Process]:
        """Return its executors on this machine, if it runs on a cluster."""
        port = (self._current.event("running") or {}).get("driver_port")
        return [
            each
            for each in psutil.process_iter(["cmdline"])
            if any(_EXECUTOR in word for word in each.info["cmdline"] or ())
            and any(word.endswith(f":{port}") for word in each.info["cmdline"])
        ]

    def workers(self) -> list[psutil.Process]:
        """Return its Python workers: the children of the daemons that Spark starts."""
        jvm = self.jvm()
        parents = [*([jvm] if jvm is not None else []), *self.executors()]
        daemons = [child for parent in parents for child in _children(parent) if _is_daemon(child)]
        return [worker for daemon in daemons for worker in _children(daemon)]

    def has_ended_start(self, number: int) -> bool:
        """Return whether a start has ended with all processes that were noted during it.

        The JVM of a driver that was killed may process records for a moment.
        """
        return self.starts > number and not any(_is_alive(each) for each in self._left)

    def note_processes(self) -> None:
        """Remember its processes, to end all of them with the run."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._left.update(psutil.Process(self._current.process.pid).children(recursive=True))

    def finish(self) -> None:
        """Ask it to process what is left and to run undisturbed once more; :meth:`event` tells when it has."""
        self.settings.finish.touch()
        driver = self.driver()
        if driver is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                driver.send_signal(signal.SIGTERM)

    def event(self, name: str) -> dict[str, Any] | None:
        """Return an event of the current start."""
        return self._current.event(name)

    def earliest(self, name: str) -> dict[str, Any] | None:
        """Return an event of the first start that reported it, in earlier commands too."""
        return next(filter(None, (_event(file, name) for file in _in_order(self._logs, "events"))), None)

    def failure(self, what: str) -> RecoveryFailed:
        """Return an error with the last lines that it printed."""
        printed = self._current.log.read_text(errors="replace").splitlines()
        lines = [line.strip() for line in printed if line.strip()]
        error = next((line for line in reversed(lines) if line.startswith("error:")), None)
        return RecoveryFailed(
            what,
            why=error or (lines[-1][:300] if lines else "it printed nothing"),
            fix=f"read {self._current.log}",
            detail="\n".join(printed[-_SHOWN_LINES:]),
        )

    def stop(self) -> None:
        """Stop it, with everything that earlier starts left."""
        self.note_processes()
        self._current.process.stop(timeout_s=_GRACE_S + STOP_TIMEOUT_S)
        _, alive = psutil.wait_procs(self._left, timeout=2)
        for each in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(alive, timeout=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, number: int) -> _Start:
        log, events = (self._logs / f"pipeline-{number}.{kind}" for kind in ("log", "events"))
        events.unlink(missing_ok=True)
        with log.open("wb") as output:
            process = GuardedProcess(
                [*self._enter, *self.settings.command(events)],
                output=output,
                grace_s=_GRACE_S,
                env={**self._env, "PYTHONUNBUFFERED": "1"},
            )
        return _Start(number, process, log, events)

    def _require_hope(self) -> None:
        if self._failed_starts and self._current.number == 1:
            raise self.failure(NOT_STARTED)
        if self._failed_starts >= _MOST_FAILED_STARTS:
            raise self.failure(f"the pipeline ended {self._failed_starts} times during its start")


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return list(process.children())
    return []


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return str(process.name())
    return ""


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _is_daemon(process: psutil.Process) -> bool:
    """Return whether a process is the parent of Spark's Python workers."""
    with contextlib.suppress(psutil.NoSuchProcess):  # also one that has ended, whose parent has not noticed
        return any(_DAEMON in word for word in process.cmdline())
    return False


def _in_order(logs: Path, kind: str) -> list[Path]:
    """Return the files of all starts."""
    return sorted(logs.glob(f"pipeline-*.{kind}"), key=lambda file: int(file.stem.partition("-")[2]))


def _event(file: Path, name: str) -> dict[str, Any] | None:
    """Return an event in a file, if it is there."""
    if not file.exists():
        return None
    complete, _, _ = file.read_text().rpartition("\n")
    events = (json.loads(line) for line in complete.splitlines())
    return next((each for each in events if each["event"] == name), None)
