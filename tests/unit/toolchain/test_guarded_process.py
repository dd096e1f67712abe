import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.toolchain.guarded_process import GuardedProcess

WaitUntil = Callable[[Callable[[], bool], str], None]

# Each prints "ready" once it is as described, and then waits for what the test does to it.
WAITING = "print('ready', flush=True); import signal; signal.pause()"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITING}"
ENDING_IN_ORDER = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit('ended in order')); " + WAITING
OWNER = """
import os, sys
from pathlib import Path
from tailrace.toolchain.guarded_process import GuardedProcess
code, output, folder, lock = sys.argv[1:]
held = os.open(lock, os.O_RDWR)
os.set_inheritable(held, True)
import fcntl
fcntl.flock(held, fcntl.LOCK_EX)
with open(output, "wb") as out:
    process = GuardedProcess(
        [sys.executable, "-c", code], output=out, grace_s=0.2, remove=[Path(folder)], keep_open=[held]
    )
os.close(held)
print(process.pid, flush=True)
sys.stdin.read()
"""


class Scene:
    """A guarded child, observed from outside: by the lock that only it holds, and by its output."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self.output = folder / "output"
        self.lock = folder / "lock"
        self.lock.touch()
        self.removed = folder / "removed"
        self.removed.mkdir()
        (self.removed / "data").write_text("x")
        self._wait_until = wait_until

    def is_alive(self) -> bool:
        """Whether the child is there: its lock is released exactly when it is gone, zombie or not."""
        with self.lock.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def wait_ready(self) -> None:
        self._wait_until(lambda: self.output.exists() and "ready" in self.output.read_text(), "the child to be ready")

    @contextlib.contextmanager
    def guarded(self, code: str, *, grace_s: float = 10.0, ready: bool = True) -> Iterator[GuardedProcess]:
        with self.lock.open("r+") as held, self.output.open("wb") as output:
            fcntl.flock(held, fcntl.LOCK_EX)
            command = [sys.executable, "-c", code]
            process = GuardedProcess(
                command, output=output, grace_s=grace_s, remove=[self.removed], keep_open=[held.fileno()]
            )
        try:
            if ready:
                self.wait_ready()
            yield process
        finally:
            process.stop()


@pytest.fixture
def scene(tmp_path: Path, wait_until: WaitUntil) -> Scene:
    return Scene(tmp_path, wait_until)


def test_stop_ends_the_child_and_removes_its_folder(scene: Scene) -> None:
    with scene.guarded(WAITING) as process:
        assert process.poll() is None
        assert scene.is_alive()
        assert scene.removed.exists()
        assert process.stop() == 128 + signal.SIGTERM
        assert not scene.is_alive()
        assert not scene.removed.exists()
        assert process.poll() == 128 + signal.SIGTERM


def test_stop_lets_the_child_end_in_order(scene: Scene) -> None:
    with scene.guarded(ENDING_IN_ORDER) as process:
        assert process.stop() == 1
    assert "ended in order" in scene.output.read_text()


def test_a_child_that_ignores_sigterm_is_killed(scene: Scene) -> None:
    with scene.guarded(STUBBORN, grace_s=0.1) as process:
        assert process.stop() == 128 + signal.SIGKILL
    assert not scene.is_alive()
    assert not scene.removed.exists()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
    ],
)
def test_a_child_that_ends_by_itself_gives_its_exit_code_and_its_folder_goes(
    scene: Scene, wait_until: WaitUntil, code: str, status: int
) -> None:
    with scene.guarded(code, ready=False) as process:
        wait_until(lambda: process.poll() is not None, "the child to end")
        assert process.poll() == status
        assert not scene.removed.exists()
        assert not scene.is_alive()


def test_the_lock_is_the_childs_alone_not_its_guards(scene: Scene) -> None:
    # A child that lets go of it by itself: were the guard holding it too, it would stay locked.
    code = f"import os; os.closerange(3, 64); {WAITING}"
    with scene.guarded(code) as process:
        assert not scene.is_alive()
        assert process.poll() is None


@pytest.mark.parametrize("code", [WAITING, STUBBORN])
def test_the_kill_of_the_owner_ends_the_child_and_removes_its_folder(
    scene: Scene, wait_until: WaitUntil, code: str
) -> None:
    arguments = [code, str(scene.output), str(scene.removed), str(scene.lock)]
    command = [sys.executable, "-c", OWNER, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        scene.wait_ready()
        assert scene.is_alive()
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: not scene.is_alive(), "the child to end after its owner")
        wait_until(lambda: not scene.removed.exists(), "the folder to be removed")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_guard_that_is_asked_to_end_stays_with_its_child(scene: Scene, number: signal.Signals) -> None:
    with scene.guarded(ENDING_IN_ORDER) as process:
        os.kill(process.pid, number)
        assert process.stop() == 1
    assert "ended in order" in scene.output.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel tells a child of its parent's death")
def test_a_killed_guard_takes_the_child_with_it(scene: Scene, wait_until: WaitUntil) -> None:
    with scene.guarded(STUBBORN) as process:
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not scene.is_alive(), "the child to end with its guard")
        assert process.stop() == -signal.SIGKILL


def test_ctrl_c_in_the_owners_terminal_does_not_reach_the_child(scene: Scene) -> None:
    with scene.guarded(WAITING) as process:
        assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_the_last_of_several_guards_removes_the_folder_that_they_share(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    own = [shared / "first", shared / "second"]
    for folder in own:
        folder.mkdir(parents=True)
    with (tmp_path / "output").open("wb") as output:
        first, second = (
            GuardedProcess(["sleep", "60"], output=output, remove=[folder], remove_empty=[shared]) for folder in own
        )
    first.stop()
    assert list(shared.iterdir()) == [own[1]]
    second.stop()
    assert not shared.exists()
