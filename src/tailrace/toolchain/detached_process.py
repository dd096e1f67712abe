"""Child processes that outlive the program that started them, such as a broker that was started by hand."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


class DetachedProcess:
    """A child process in a session of its own. Until :meth:`detach` it can be stopped."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: IO[bytes],
        keep_open: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``command``.

        Args:
            command: The program and its arguments.
            output: The file for the process's standard output and error.
            keep_open: Descriptors that the process inherits, such as a file lock held for its lifetime.
            env: The process's environment; this program's own by default.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=tuple(keep_open),
            env=env,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()

    def detach(self) -> None:
        """Let the process outlive this program; otherwise Python warns about a process that was not waited for."""
        self._process.returncode = 0
