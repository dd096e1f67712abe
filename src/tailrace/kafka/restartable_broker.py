"""A private broker that keeps its data and its address, so that it can be killed, frozen and started again."""

import signal
from pathlib import Path
from typing import Self

import psutil

from tailrace.errors import BrokerStartFailed
from tailrace.kafka.broker import HEAP_MB, BrokerRecord, broker_command, wait_ready
from tailrace.kafka.ports import free_ports
from tailrace.kafka.server_files import ServerFiles
from tailrace.toolchain.guarded_process import GuardedProcess
from tailrace.toolchain.jars import Announce

_START_TIMEOUT_S = 60.0
"""A broker that was killed checks its logs first."""
_GRACE_S = 10.0
_TRIES = 3


class RestartableBroker:
    """A broker in a folder of the caller's. It ends with this program, even after ``kill -9``; its data stays."""

    def __init__(self, folder: Path, announce: Announce) -> None:
        self._files = ServerFiles(folder)
        self._command = broker_command(self._files, announce, HEAP_MB)
        self._ports = free_ports(2)
        self._process: GuardedProcess | None = None
        self._start()

    @property
    def bootstrap_servers(self) -> str:
        """The address that clients connect to; it does not change."""
        return self._record(0).bootstrap_servers

    def kill(self) -> None:
        """End it at once, as in a crash."""
        self._java().kill()
        self._end()

    def restart(self) -> None:
        """Start it again after :meth:`kill`, with its data and at its address."""
        for attempt in range(1, _TRIES + 1):
            try:
                self._start()
            except BrokerStartFailed:
                if attempt == _TRIES:
                    raise
            else:
                return

    def freeze(self) -> None:
        """Suspend it: it keeps its connections and does not respond."""
        self._java().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it after :meth:`freeze`."""
        self._java().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Stop it; its data stays."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _record(self, pid: int) -> BrokerRecord:
        port, controller_port = self._ports
        return BrokerRecord("chaos", pid, port, controller_port, "program", str(self._files.folder))

    def _start(self) -> None:
        self._files.write(*self._ports)
        with self._files.output.open("ab") as output:
            before = output.tell()
            self._process = GuardedProcess(self._command, output=output, grace_s=_GRACE_S)
        with self._files.output.open("rb") as printed:
            printed.seek(before)
            try:
                wait_ready(self._record(self._process.pid), self._process.poll, printed, _START_TIMEOUT_S)
            except BaseException:
                self._end()
                raise

    def _java(self) -> psutil.Process:
        """Return the broker's own process, the only child of its guard."""
        if self._process is None:
            raise AssertionError("the broker runs")
        (java,) = psutil.Process(self._process.pid).children()
        return java

    def _end(self) -> None:
        if self._process is not None:
            self._process.stop(timeout_s=2 * _GRACE_S)
            self._process = None
