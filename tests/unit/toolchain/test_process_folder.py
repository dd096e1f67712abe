"""The lock by which a background process is known to run, with several processes looking at once."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tailrace.toolchain import process_folder
from tailrace.toolchain.detached_process import DetachedProcess
from tailrace.toolchain.process_folder import FolderBusyError, ProcessFolder, printed_reason, send_signal


@pytest.fixture
def dead(tmp_path: Path) -> ProcessFolder:
    """The folder of a process that ran and was killed."""
    folder = ProcessFolder(tmp_path)
    with folder.locked():
        pass
    return folder


@contextmanager
def during_the_first_lock(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> Iterator[None]:
    """Run something at the moment in which a probe holds its lock."""
    locked = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(process_folder.fcntl, "flock", locked)
        locked(descriptor, operation)
        then()

    monkeypatch.setattr(process_folder.fcntl, "flock", flock)
    yield
    assert process_folder.fcntl.flock is locked, "nothing was locked"


def test_two_probes_at_once_both_see_that_nothing_runs(monkeypatch: pytest.MonkeyPatch, dead: ProcessFolder) -> None:
    seen: list[bool] = []
    with during_the_first_lock(monkeypatch, lambda: seen.append(dead.is_running())):
        seen.append(dead.is_running())
    assert seen == [False, False]


def test_a_running_process_is_seen_by_every_probe(dead: ProcessFolder) -> None:
    with dead.locked():
        assert [dead.is_running(), dead.is_running()] == [True, True]
        with pytest.raises(FolderBusyError), dead.locked():
            pass
    assert not dead.is_running()


def test_a_start_waits_for_a_probe_to_end(monkeypatch: pytest.MonkeyPatch, dead: ProcessFolder) -> None:
    probe = os.open(dead.path / "running.lock", os.O_RDWR)
    fcntl.flock(probe, fcntl.LOCK_SH)
    monkeypatch.setattr(process_folder.time, "sleep", lambda _: os.close(probe))
    with dead.locked():
        assert dead.is_running()


def test_in_a_folder_that_does_not_exist_nothing_runs(tmp_path: Path) -> None:
    assert not ProcessFolder(tmp_path / "none").is_running()


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"'])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: str) -> None:
    folder = ProcessFolder(tmp_path)
    folder.write_record({"pid": 1})
    assert folder.read_record() == {"pid": 1}
    (tmp_path / "process.json").write_text(content)
    assert folder.read_record() is None
    folder.forget_record()
    folder.forget_record()
    assert folder.read_record() is None


STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("on", flush=True)
sys.stdin.read()
"""


def test_a_process_that_ignores_sigterm_is_killed_after_the_timeout(tmp_path: Path) -> None:
    folder = ProcessFolder(tmp_path)
    with folder.locked() as lock:
        process = subprocess.Popen(
            [sys.executable, "-c", STUBBORN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[lock]
        )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        assert folder.is_running()
        send_signal(process.pid, signal.SIGTERM)
        folder.await_end(process.pid, 0.2)
        assert process.wait(10) == -signal.SIGKILL


def test_a_detached_process_holds_the_lock_until_it_is_stopped(tmp_path: Path) -> None:
    folder = ProcessFolder(tmp_path / "p")
    with folder.locked() as lock, (tmp_path / "out").open("wb") as output:
        process = DetachedProcess(["sleep", "60"], output=output, keep_open=[lock], env={"PATH": os.environ["PATH"]})
    assert process.poll() is None
    assert folder.is_running()
    process.stop()
    assert not folder.is_running()
    send_signal(process.pid, signal.SIGTERM)  # it has ended: nothing happens


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("x\njava.lang.RuntimeException: no\n\tat y\nCaused by: java.io.IOException: disk full\n", "disk full"),
        ("java.net.BindException: Address already in use\n", "Address already in use"),
        ("26/01/01 ERROR Master: cannot bind\n", "Master: cannot bind"),
        ("first\nlast\n", "last"),
        ("", "it printed nothing"),
    ],
)
def test_the_reason_is_what_java_names(output: str, reason: str) -> None:
    assert printed_reason(output) == reason
