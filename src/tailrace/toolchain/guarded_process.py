"""Child processes that never outlive the program that started them, not even after ``kill -9``.

A process cannot clean up after its own ``kill -9``, so another process must. :class:`GuardedProcess` puts a small guard
process between the owner and the child. The guard holds the read end of a pipe, and only the owner holds the write
end. When the owner ends in any way, the pipe closes; the guard then stops the child and removes the given folders. The
owner stops the child by closing the pipe, so every run uses the same shutdown path.

Tailrace's own Python children need no guard: they watch their standard input (``traffic/worker.py``).

The guard runs this file as a script in a bare interpreter, so it imports only the standard library.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
"""Linux's prctl option that asks the kernel for a signal when the parent thread ends."""


class GuardedProcess:
    """A child process that ends when its owner ends, for whatever reason."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: IO[bytes],
        grace_s: float = 3.0,
        remove: Sequence[Path] = (),
        remove_empty: Sequence[Path] = (),
        keep_open: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``command`` under a guard.

        Args:
            command: The program and its arguments.
            output: The file for the child's standard output and error.
            grace_s: How long the child may take to end after SIGTERM before it is killed.
            remove: Folders that the guard deletes after the child has ended.
            remove_empty: Folders that the guard then deletes if they are empty: several guards may share one.
            keep_open: Descriptors that the child inherits, such as a file lock held for its lifetime.
            env: The child's environment; the owner's own by default.
        """
        guard = [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__)),
            str(grace_s),
            json.dumps([[str(folder) for folder in folders] for folders in (remove, remove_empty)]),
            "--",
            *command,
        ]
        # A new session: Ctrl-C in the terminal reaches only the owner, which then stops the child in order.
        self._guard = subprocess.Popen(
            guard,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(keep_open),
            env=env,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The guard's process id; the child is its only child."""
        return self._guard.pid

    def poll(self) -> int | None:
        """Return the child's exit code, or None while it runs."""
        return self._guard.poll()

    def stop(self, timeout_s: float = 15.0) -> int:
        """Stop the child; wait until it has ended and its folders are removed."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        return self._guard.wait(timeout_s)


def _die_with_parent() -> None:
    """On Linux, let the kernel kill the child if the guard is killed."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _guard(command: list[str], grace_s: float, remove: list[str], remove_empty: list[str]) -> int:
    """Run ``command`` until it or the owner ends; return its exit code."""
    inherited = tuple(fd for fd in _open_descriptors() if fd > 2)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=inherited,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - the guard has one thread, so this fork is safe
    )
    for fd in inherited:
        # Only the child may hold them: a lock is then released exactly when the child ends.
        os.close(fd)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for stop_signal in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(stop_signal, signal.SIG_IGN)
    while child.poll() is None:
        ready, _, _ = select.select([0, wake_read], [], [], 1.0)
        if 0 in ready and not os.read(0, 4096):
            _end(child, grace_s)
            break
        if wake_read in ready:
            os.read(wake_read, 4096)
    for folder in remove:
        shutil.rmtree(folder, ignore_errors=True)
    for folder in remove_empty:
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
    return child.wait()


def _open_descriptors() -> list[int]:
    """Return the file descriptors that this process inherited."""
    for listing in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            listed = [int(name) for name in os.listdir(listing)]  # noqa: PTH208 - the names are numbers, not paths
            return [fd for fd in listed if _is_open(fd)]
    return []


def _is_open(fd: int) -> bool:
    """Return whether a descriptor is still open; the one that listed the folder is closed."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """Send SIGTERM to the child, and SIGKILL after the grace period."""
    child.terminate()
    deadline = time.monotonic() + grace_s
    while child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    if child.poll() is None:
        child.kill()
        child.wait()


if __name__ == "__main__":
    _, grace_argument, remove_argument, _, *command_arguments = sys.argv
    code = _guard(command_arguments, float(grace_argument), *json.loads(remove_argument))
    sys.exit(code if code >= 0 else 128 - code)
