import os
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.toolchain.filelock import LockTimeoutError, exclusive

HOLD = """
import sys
from pathlib import Path
from tailrace.toolchain.filelock import exclusive
with exclusive(Path(sys.argv[1]), on_wait=lambda holder: None):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder_of(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_process_waits_and_learns_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lock"
    waited_for: list[str] = []
    with holder_of(path) as process:

        def let_go(pid: str) -> None:
            waited_for.append(pid)
            process.communicate(timeout=30)  # closes its input, which ends it

        with exclusive(path, on_wait=let_go, timeout_s=30):
            assert path.read_text().strip() == str(os.getpid())
        assert waited_for == [str(process.pid)]


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder_of(path) as process:
        process.kill()
        process.wait(timeout=30)
        with exclusive(path, on_wait=lambda pid: pytest.fail(f"waited for {pid}"), timeout_s=0):
            pass


def test_waiting_times_out(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holder_of(path) as process:
        with (
            pytest.raises(LockTimeoutError) as ended,
            exclusive(path, on_wait=lambda _pid: None, timeout_s=0.3),
        ):
            pytest.fail("two processes hold the lock")
        assert ended.value.holder == str(process.pid)
        process.communicate(timeout=30)
