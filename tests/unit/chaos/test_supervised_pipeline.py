"""A pipeline that is started again whenever it ends: real processes, short ones."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tailrace.chaos import supervised_pipeline
from tailrace.chaos.pipeline_process import Settings
from tailrace.chaos.supervised_pipeline import SupervisedPipeline
from tailrace.errors import RecoveryFailed

WaitUntil = Callable[[Callable[[], bool], str], None]
RUNS = """
import json, signal, subprocess, sys, threading
from pathlib import Path
events = Path(sys.argv[1])
finish = Path(sys.argv[2])
def add(event):
    with events.open("a") as file:
        file.write(json.dumps({"event": event, "ends": {"out": {"0": 5}}}) + chr(10))
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
if not finish.exists():
    add("running")
    stop.wait()
if finish.exists():
    add("finished")
    add("compared")
"""
FAILS = "import sys; sys.exit('error: the topic is missing')"


@dataclass(frozen=True)
class FakeSettings(Settings):
    """A pipeline that is a few lines of Python."""

    code: str = RUNS

    def command(self, events: Path) -> list[str]:
        return [sys.executable, "-c", self.code, str(events), str(self.finish)]


def settings(folder: Path, code: str = RUNS) -> FakeSettings:
    return FakeSettings("p.py", "in", ("out",), "b:1", str(folder), "realtime", None, "10s", "1s", None, {}, code)


def watched(pipeline: SupervisedPipeline, condition: Callable[[], bool]) -> Callable[[], bool]:
    def holds() -> bool:
        pipeline.watch()
        return condition()

    return holds


def test_it_is_started_again_after_a_kill(tmp_path: Path, wait_until: WaitUntil) -> None:
    with SupervisedPipeline(settings(tmp_path), tmp_path / "logs") as pipeline:
        wait_until(watched(pipeline, lambda: pipeline.is_running), "the start")
        driver = pipeline.driver()
        assert driver is not None
        driver.kill()
        wait_until(watched(pipeline, lambda: pipeline.starts == 2 and pipeline.is_running), "the second start")
    assert [file.name for file in sorted((tmp_path / "logs").glob("*.log"))] == ["pipeline-1.log", "pipeline-2.log"]


def test_nothing_is_left_when_it_is_stopped(tmp_path: Path, wait_until: WaitUntil) -> None:
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']){RUNS}"
    with SupervisedPipeline(settings(tmp_path, code), tmp_path / "logs") as pipeline:
        wait_until(watched(pipeline, lambda: pipeline.is_running), "the start")
        driver = pipeline.driver()
        assert driver is not None
        (orphan,) = driver.children()
        pipeline.note_processes()
        driver.kill()
        wait_until(watched(pipeline, lambda: pipeline.starts == 2), "the second start")
        assert orphan.is_running()
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


def test_it_finishes_and_is_not_started_again(tmp_path: Path, wait_until: WaitUntil) -> None:
    with SupervisedPipeline(settings(tmp_path), tmp_path / "logs") as pipeline:
        wait_until(watched(pipeline, lambda: pipeline.is_running), "the start")
        pipeline.finish()
        wait_until(watched(pipeline, lambda: pipeline.event("compared") is not None), "the end")
        wait_until(watched(pipeline, lambda: pipeline.driver() is None), "the end of the process")
        pipeline.watch()
        assert pipeline.starts == 1
        assert pipeline.earliest("finished") is not None


def test_a_later_command_counts_on_and_knows_what_was_finished(tmp_path: Path, wait_until: WaitUntil) -> None:
    with SupervisedPipeline(settings(tmp_path), tmp_path / "logs") as pipeline:
        wait_until(watched(pipeline, lambda: pipeline.is_running), "the start")
    with SupervisedPipeline(settings(tmp_path), tmp_path / "logs") as again:
        assert again.starts == 2
        assert again.earliest("running") is not None


def test_a_first_start_that_fails_is_an_error_with_its_reason(tmp_path: Path, wait_until: WaitUntil) -> None:
    with SupervisedPipeline(settings(tmp_path, FAILS), tmp_path / "logs") as pipeline:
        wait_until(lambda: pipeline.driver() is None, "its end")
        with pytest.raises(RecoveryFailed) as failed:
            wait_until(watched(pipeline, lambda: False), "an error")
    assert failed.value.what == "the pipeline did not start"
    assert failed.value.why == "error: the topic is missing"


def test_starts_that_fail_again_and_again_are_an_error_unless_a_fault_lasts(
    tmp_path: Path, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised_pipeline, "_PAUSE_S", 0.0)
    code = f"import pathlib, sys\nif pathlib.Path({str(tmp_path)!r}, 'full').exists(): sys.exit('error: full'){RUNS}"
    with SupervisedPipeline(settings(tmp_path, code), tmp_path / "logs") as pipeline:
        wait_until(watched(pipeline, lambda: pipeline.is_running), "the start")
        (tmp_path / "full").touch()
        driver = pipeline.driver()
        assert driver is not None
        pipeline.tolerates_failures = True
        driver.kill()
        wait_until(watched(pipeline, lambda: pipeline.starts > 7), "many starts")
        pipeline.tolerates_failures = False
        with pytest.raises(RecoveryFailed, match="times during its start"):
            wait_until(watched(pipeline, lambda: False), "an error")
