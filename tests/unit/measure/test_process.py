"""An engine's process: real processes, short ones."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tailrace.errors import MeasurementFailed
from tailrace.measure.lane import Command
from tailrace.measure.process import KilledOnce, LaneProcess, _error_line

WaitUntil = Callable[[Callable[[], bool], str], None]
WAITING = "import os, signal, sys; print(os.environ['WORD'], os.getpid(), flush=True); signal.pause()"
IN_ORDER = f"import signal, sys; signal.signal(signal.SIGTERM, lambda *_: (print('in order'), sys.exit(0))); {WAITING}"


def python(code: str, **env: str) -> Command:
    return Command((sys.executable, "-c", code), {"WORD": "hello", **env})


def printed(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def test_a_process_runs_with_its_environment_until_it_is_stopped(tmp_path: Path, wait_until: WaitUntil) -> None:
    log = tmp_path / "lane.log"
    with LaneProcess("flink", python(IN_ORDER), log) as process:
        wait_until(lambda: "\n" in printed(log), "the engine to start")
        child = int(printed(log).split()[1])
        process.require_running()
        assert child in {each.pid for each in psutil.Process(process.pid).children(recursive=True)}
    assert "in order" in printed(log), "SIGTERM lets an engine end as it wants"
    assert not psutil.pid_exists(child)


def test_a_process_that_ends_by_itself_is_an_error_with_its_last_error_line(
    tmp_path: Path, wait_until: WaitUntil
) -> None:
    code = "import sys; print('starting'); print('java.lang.OutOfMemoryError: heap'); print('bye'); sys.exit(3)"

    def ended() -> bool:
        try:
            process.require_running()
        except MeasurementFailed:
            return True
        return False

    with LaneProcess("flink", python(code), tmp_path / "lane.log") as process:
        wait_until(ended, "the engine to end")
        with pytest.raises(MeasurementFailed) as failed:
            process.require_running()
    assert failed.value.what == "lane flink ended by itself with exit code 3"
    assert failed.value.why == "java.lang.OutOfMemoryError: heap"
    assert failed.value.detail.splitlines() == ["starting", "java.lang.OutOfMemoryError: heap", "bye"]


def test_a_killed_process_runs_no_cleanup(tmp_path: Path, wait_until: WaitUntil) -> None:
    log = tmp_path / "lane.log"
    process = LaneProcess("flink", python(IN_ORDER), log)
    wait_until(lambda: "\n" in printed(log), "the engine to start")
    child = int(printed(log).split()[1])
    process.kill()
    assert "in order" not in printed(log)
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize(
    ("lines", "telling"),
    [
        ([], "it printed nothing"),
        (["", "  "], "it printed nothing"),
        (["one", " two "], "two"),
        (["ValueError: first", "KafkaException: second", "shutting down"], "KafkaException: second"),
        (["error: no such topic", "bye"], "error: no such topic"),
        (["x" * 999], "x" * 300),
    ],
)
def test_the_error_line_is_the_last_one_with_an_error(lines: list[str], telling: str) -> None:
    assert _error_line(lines) == telling


class FakeProcess:
    """A process that only takes notes."""

    def __init__(self, attempt: int, notes: list[str]) -> None:
        self.pid, self.notes = attempt, notes
        notes.append(f"start {attempt}")

    def require_running(self) -> None:
        self.notes.append(f"look at {self.pid}")

    def kill(self) -> None:
        self.notes.append(f"kill {self.pid}")

    def stop(self) -> None:
        self.notes.append(f"stop {self.pid}")


def test_an_engine_is_killed_once_and_restarted() -> None:
    notes: list[str] = []
    moment = [float("inf")]
    before = time.time_ns()
    with KilledOnce(lambda attempt: FakeProcess(attempt, notes), lambda: moment[0]) as engine:  # type: ignore[arg-type,return-value]
        engine.require_running()
        assert notes == ["start 1", "look at 1"]
        moment[0] = 0.0
        for _ in range(2):
            engine.require_running()
        assert engine.pid == 2
        assert engine.killed_ns is not None
        assert engine.killed_ns >= before
    assert notes == ["start 1", "look at 1", "kill 1", "start 2", "look at 2", "look at 2", "stop 2"]
