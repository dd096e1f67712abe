"""Save the progress of a running query on request, instead of at the next checkpoint."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from tailrace.engine import RunControl
from tailrace.errors import CheckpointTimeout, TailraceError
from tailrace.pipeline import Mode

_POLL_EVERY_S = 0.005
_PAUSE_TIMEOUT_S = 10.0
"""How long the next batch may take to begin after a checkpoint; after that the pause is not reported."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that was written on request.

    Attributes:
        number: The number of the batch in the checkpoint; None if the query has saved no batch yet and has nothing to
            save.
        pause_ms: How long no record was read, in real time; None if that is not known, 0 in micro-batch.
    """

    number: int | None
    pause_ms: float | None


class Saving:
    """Checkpoints a query on request, one at a time; a request during another one gets its result."""

    def __init__(self, name: str, control: RunControl, mode: Mode) -> None:
        self._name = name
        self._control = control
        self._mode = mode
        self._lock = threading.Lock()
        self._current: Future[SavedCheckpoint] | None = None

    def checkpoint(self, timeout_s: float, require_running: Callable[[], None]) -> SavedCheckpoint:
        """Checkpoint the query and wait until that is saved.

        Args:
            timeout_s: How long to wait.
            require_running: Raises if the query has failed, has ended or is being stopped.

        Raises:
            CheckpointTimeout: It took longer.
            TailraceError: What ``require_running`` raises.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            require_running()
            with self._lock:
                joined, mine = self._current, Future[SavedCheckpoint]()
                self._current = joined or mine
            if joined is None:
                return self._lead(mine, deadline, timeout_s, require_running)
            try:
                return joined.result(max(0.0, deadline - time.monotonic()))
            except FutureTimeoutError as late:
                raise self._late(timeout_s) from late
            except CancelledError:
                continue  # its caller was interrupted: this call takes its place

    def _lead(
        self, mine: Future[SavedCheckpoint], deadline: float, timeout_s: float, require_running: Callable[[], None]
    ) -> SavedCheckpoint:
        """Checkpoint the query for this call and for those that have joined it."""
        try:
            number = self._save(deadline, timeout_s, require_running)
        except BaseException as failed:
            self._end_joining()
            if isinstance(failed, Exception):
                mine.set_exception(failed)
            else:
                mine.cancel()
            raise
        self._end_joining()
        pause_ms = None
        try:
            pause_ms = self._pause_ms(number, deadline, require_running)
        finally:  # also if Ctrl-C interrupts the wait for the pause: it is saved anyway
            saved = SavedCheckpoint(number, pause_ms)
            mine.set_result(saved)
        return saved

    def _end_joining(self) -> None:
        """Start a new checkpoint for later requests: this one may lack their records."""
        with self._lock:
            self._current = None

    def _save(self, deadline: float, timeout_s: float, require_running: Callable[[], None]) -> int | None:
        """Return the number of the batch that was saved."""

        def wait() -> None:
            require_running()
            if time.monotonic() > deadline:
                raise self._late(timeout_s)
            time.sleep(_POLL_EVERY_S)

        if self._mode is Mode.MICROBATCH:
            return self._next_commit(wait)
        self._control.end_batch()
        while (batch := self._control.last_ended()) is None:
            wait()
        while not self._control.is_committed(batch):
            wait()
        return batch

    def _next_commit(self, wait: Callable[[], None]) -> int | None:
        """Wait for the commit of the running micro-batch, if one runs."""
        running, saved = self._control.latest_logged()
        if running is None or running == saved:
            return saved
        while not self._control.is_committed(running):
            wait()
        return running

    def _pause_ms(self, batch: int | None, deadline: float, require_running: Callable[[], None]) -> float | None:
        """Wait until the next batch reads, and return how long none did; None if it does not begin."""
        if self._mode is Mode.MICROBATCH or batch is None:
            return 0.0
        pause_by = min(deadline, time.monotonic() + _PAUSE_TIMEOUT_S)
        with contextlib.suppress(TailraceError):  # it was stopped meanwhile; the checkpoint is saved anyway
            while (pause_ms := self._control.pause_ms(batch)) is None and time.monotonic() < pause_by:
                require_running()
                time.sleep(_POLL_EVERY_S)
            return pause_ms
        return None

    def _late(self, timeout_s: float) -> CheckpointTimeout:
        return CheckpointTimeout(
            f"query {self._name!r} was not checkpointed within {timeout_s:g} s",
            why="the records that were read are not processed yet, or the checkpoint cannot be written",
            fix="call checkpoint(timeout_s=...) with more time; the query keeps running",
        )
