import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import MeasurementFailed
from tailrace.measure.traffic.worker import Worker

ECHO = """
import fcntl, os
from tailrace.measure.traffic.worker import Orders
# Held by this process alone: it is free again exactly when this process is gone.
lock = open(os.environ["WORKER_LOCK"], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
orders = Orders()
orders.reply({"settings": orders.settings, "pid": os.getpid(), "session": os.getsid(0)})
while not orders.released.wait(0.01):
    for order in orders.take():
        orders.reply({"order": order})
"""
FAIL = """
import sys
from tailrace.measure.traffic.worker import Orders
Orders()
print("first line", file=sys.stderr)
sys.exit("the broker said no")
"""
OWNER = """
import sys
from tailrace.measure.traffic.worker import Worker
worker = Worker("echo_worker", {})
worker.answer(20)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workers of our own, which `python -m` finds."""
    for name, code in {"echo_worker": ECHO, "fail_worker": FAIL}.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("WORKER_LOCK", str(tmp_path / "lock"))
    return tmp_path / "lock"


def answer(worker: Worker) -> dict[str, Any]:
    message = worker.answer(20)
    assert message is not None
    return message


def is_alive(lock: Path) -> bool:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_settings_and_orders_arrive_in_order() -> None:
    with Worker("echo_worker", {"rate": 5, "text": "ä\n"}) as worker:
        assert answer(worker)["settings"] == {"rate": 5, "text": "ä\n"}
        for number in range(3):
            worker.send({"number": number})
        assert [answer(worker)["order"]["number"] for _ in range(3)] == [0, 1, 2]


def test_a_late_answer_is_none_and_then_delivered() -> None:
    with Worker("echo_worker", {}) as worker:
        answer(worker)
        assert worker.answer(0.01) is None
        worker.send({"late": True})
        assert answer(worker)["order"] == {"late": True}


def test_closing_ends_the_process(lock: Path) -> None:
    with Worker("echo_worker", {}) as worker:
        answer(worker)
        assert is_alive(lock)
    assert not is_alive(lock)


def test_ctrl_c_reaches_only_the_owner() -> None:
    with Worker("echo_worker", {}) as worker:
        said = answer(worker)
        assert said["session"] == said["pid"], "a session of its own"


def test_a_process_that_ends_early_is_an_error_with_its_output() -> None:
    with Worker("fail_worker", {}) as worker:
        for _ in range(2):  # asking again gives the same answer, not a wait
            with pytest.raises(MeasurementFailed) as failed:
                worker.answer(20)
        assert "fail_worker ended early" in failed.value.what
        assert failed.value.why == "the broker said no"
        assert failed.value.detail == "first line\nthe broker said no"
        with pytest.raises(MeasurementFailed):
            worker.send({"more": 1})


def test_the_death_of_the_owner_ends_the_process(
    lock: Path, wait_until: Callable[[Callable[[], bool], str], None]
) -> None:
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "ready\n"
        assert is_alive(lock)
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(lock), "the worker to end after its owner")


def test_the_owner_can_ask_whether_it_runs() -> None:
    with Worker("echo_worker", {}) as worker:
        answer(worker)
        worker.require_running()
    with Worker("fail_worker", {}) as worker:
        with pytest.raises(MeasurementFailed):
            worker.answer(20)
        with pytest.raises(MeasurementFailed, match="ended early") as failed:
            worker.require_running()
        assert failed.value.why == "the broker said no"
