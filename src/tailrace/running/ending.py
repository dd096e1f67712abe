"""End a running query so that its last batch is saved."""

import threading
import time
from enum import StrEnum

from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine import RunControl
from tailrace.pipeline import Mode


class RepeatReason(StrEnum):
    """Why the next start processes records again; a batch that did not end in time has a sentence with the time."""

    TASK_FAILED = "a task had failed"
    """A retry did not read as far as the failed attempt: the batch is saved without some of its records."""
    STOPPED_BY_SPARK = "Spark stopped it, not Tailrace"
    INTERRUPTED = "the stop was interrupted"
    NO_TIME = "a stop timeout of 0 leaves no time to save"
    NOT_SAVED = "its last batch could not be saved"
    UNCONTROLLED = "Spark's own Kafka source cannot end a batch early"
    UNFINISHED = "its batch was not finished"


_POLL_EVERY_S = 0.02


class Ending:
    """Ends a query after its running batch is saved.

    Args:
        query: The query.
        mode: Its mode.
        control: Its control; None if Spark's own source reads its records.
        timeout_s: How long the records that were read may take.
    """

    def __init__(self, query: StreamingQuery, mode: Mode, control: RunControl | None, timeout_s: float) -> None:
        self.control = control
        self.is_requested = False
        """Whether the query is being ended, or has been."""
        self.repeats: RepeatReason | str = ""
        """Why the next start processes records again; empty if the last batch is saved."""
        self._query = query
        self._mode = mode
        self._timeout_s = timeout_s
        self._lock = threading.Lock()

    def has_ended(self) -> bool:
        """Return whether the query has ended; Spark calls it inactive before its last commit."""
        return self.control.has_ended() if self.control is not None else not self._query.isActive

    def end(self, timeout_s: float | None) -> None:
        """Save what was read and end the query, if that succeeds in time. The first call counts; others wait for it.

        In real time the running batch ends at once; a micro-batch is finished. A query that fails meanwhile has ended,
        too. If the time runs out, the query still runs.
        """
        with self._lock:
            if self.is_requested:
                return
            self.is_requested = True
            if self.has_ended():
                self.repeats = self._repeated(RepeatReason.STOPPED_BY_SPARK)
                return
            self.repeats = RepeatReason.INTERRUPTED
            self.repeats = self._end(self._timeout_s if timeout_s is None else timeout_s)

    def interrupt(self) -> None:
        """Save nothing: a later call to :meth:`end` does not wait for the batch."""
        # Without the lock, which a stop in another thread may hold for long: then that call counts.
        if not self.is_requested:
            self.is_requested, self.repeats = True, RepeatReason.INTERRUPTED

    def settle(self) -> None:
        """Record that Spark stopped the query: if no batch ran at that moment, nothing is repeated."""
        if self.repeats and self.control is not None and self.control.has_ended():
            self.repeats = self._repeated(self.repeats)

    def _end(self, timeout_s: float) -> str:
        if self.control is None:
            return self._cut_short()
        deadline = time.monotonic() + timeout_s
        if timeout_s > 0 or not self._realtime:
            self.control.stop()
        while not self.control.has_ended():
            if not self._realtime and self.control.is_idle():
                self._query.stop()  # it waits for its next trigger
                break
            if timeout_s <= 0:
                return RepeatReason.NO_TIME
            if time.monotonic() > deadline:
                return f"its batch did not end within {timeout_s:g} s"
            time.sleep(_POLL_EVERY_S)
        return self._repeated(RepeatReason.NOT_SAVED)

    def _repeated(self, unsaved: str) -> str:
        """Return why the next start repeats records of the ended query.

        Args:
            unsaved: The reason if its last batch is not saved.
        """
        if self.control is None:
            return ""
        if not self.control.is_saved():
            return unsaved
        return RepeatReason.TASK_FAILED if self.control.has_short_retries() else ""

    def _cut_short(self) -> str:
        """Return what a stop of a query without control repeats: Spark's own stop ends no batch."""
        if self._realtime:
            return RepeatReason.UNCONTROLLED
        return RepeatReason.UNFINISHED if self._query.status["isTriggerActive"] else ""

    @property
    def _realtime(self) -> bool:
        return self._mode is Mode.REALTIME
