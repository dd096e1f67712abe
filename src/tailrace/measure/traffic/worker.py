"""A measuring process: it receives lines of JSON and answers with lines of JSON.

It ends when its owner closes the pipe or ends.
"""

import contextlib
import gc
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Self

from tailrace.errors import MeasurementFailed


class Worker:
    """The owner's side."""

    def __init__(self, module: str, settings: Mapping[str, Any]) -> None:
        """Start ``python -m module`` and send it the settings."""
        self.module = module
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # Ctrl-C goes to the owner, which then ends this process.
            start_new_session=True,
            text=True,
            bufsize=1,
        )
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=module, daemon=True)
        self._reader.start()
        self.send(settings)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        if self._process.stdin is None:
            raise AssertionError("started with a pipe")
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError):
            raise self._died() from None

    def answer(self, timeout_s: float) -> dict[str, Any] | None:
        """Return the next answer, or None if there is none in time.

        Raises:
            MeasurementFailed: The process ended.
        """
        try:
            message = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if message is None:
            self._answers.put(None)
            raise self._died()
        return message

    def require_running(self) -> None:
        """Check that the process runs.

        Raises:
            MeasurementFailed: It ended.
        """
        if self._process.poll() is not None:
            raise self._died()

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        if self._process.stdout is None:
            raise AssertionError("started with a pipe")
        try:
            for line in self._process.stdout:
                self._answers.put(json.loads(line))
        finally:
            self._answers.put(None)

    def _died(self) -> MeasurementFailed:
        self._process.wait(5)
        self._errors.seek(0)
        printed = self._errors.read().decode(errors="replace").strip()
        return MeasurementFailed(
            f"the measuring process {self.module.rpartition('.')[2]} ended early",
            why=printed.splitlines()[-1] if printed else "it printed nothing",
            detail=printed,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Orders:
    """The worker's side: the settings first, then messages as they arrive."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = json.loads(sys.stdin.readline())
        self._pending: queue.Queue[dict[str, Any]] = queue.Queue()
        self.released = threading.Event()
        """Set when the owner has closed the pipe or ended."""
        threading.Thread(target=self._listen, name="orders", daemon=True).start()
        # A pause of the garbage collector would count as latency of the engine.
        gc.collect()
        gc.freeze()
        gc.disable()

    def take(self) -> Iterator[dict[str, Any]]:
        """Yield the messages since the last call."""
        while not self._pending.empty():
            yield self._pending.get()

    @staticmethod
    def reply(message: Mapping[str, Any]) -> None:
        """Answer the owner."""
        try:
            sys.stdout.write(json.dumps(message) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            # The owner has ended.
            sys.exit(0)

    def _listen(self) -> None:
        for line in sys.stdin:
            self._pending.put(json.loads(line))
        self.released.set()
