"""A query that runs: waiting for it, stopping it, and what it said when it ended."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.checkpoint import Checkpoint
from tailrace.engine import (
    BatchWatch,
    FunctionCost,
    FunctionCosts,
    RecordCounts,
    failure_text,
    has_tasks_at_work,
    malformed_in_all,
)
from tailrace.errors import QueryFailed
from tailrace.pipeline import Mode
from tailrace.plan.slots import Slots
from tailrace.preflight.report import CheckReport
from tailrace.runtime.failure import translate_failure
from tailrace.runtime.flow_watch import FlowWatch
from tailrace.runtime.visible_records import VisibleRecords

if TYPE_CHECKING:
    from tailrace.preflight.finding import Finding
    from tailrace.runtime.bounded import Bound

_LOOK_EVERY_S = 0.2
_COUNTS_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class RunSummary:
    """What a query did between its start and its end, as far as its completed batches tell."""

    name: str
    mode: str
    seconds: float
    batches: int
    input_rows: int
    checkpoint: str
    malformed: Mapping[str, int]
    """Records that could not be read, by reason, in the tasks that have ended; one read again counts again."""
    why_microbatch: tuple[Mapping[str, str], ...] = ()
    """What was found against real time, where the mode was left to Tailrace."""
    python: Mapping[str, FunctionCost] = field(default_factory=dict)
    """What each Python function cost, where the engine ran it."""


class RunningQuery:
    """A started query. It holds its checkpoint until it is stopped or has failed."""

    def __init__(
        self,
        query: StreamingQuery,
        *,
        name: str,
        mode: Mode,
        checkpoint: Checkpoint,
        report: CheckReport,
        counts: Sequence[RecordCounts] = (),
        costs: FunctionCosts | None = None,
    ) -> None:
        self.query = query
        """PySpark's own handle, for everything that is not here."""
        self.name = name
        self.mode = mode
        self.report = report
        """What the check before the start had to say."""
        self.why_microbatch: tuple[Finding, ...] = ()
        """What was found against real time, where the mode was left to Tailrace."""
        self._flow: FlowWatch | None = None
        self.lost_lineage = ""
        """What of a record's origin its outputs do not carry, in words; or nothing."""
        self._bound: Bound | None = None
        self.watch: BatchWatch | None = None
        """Knows which batch runs, where it is to end by itself."""
        self._checkpoint = checkpoint
        self._counts = tuple(counts)
        self._costs = costs
        self._last_costs: dict[str, FunctionCost] = {}
        self._latest: Mapping[str, Any] | None = None
        self._last_malformed: dict[str, int] = {}
        self._ending: BatchWatch | None = None
        self._started_at = time.monotonic()
        self._seen_batches: dict[int, int] = {}

    @property
    def slots(self) -> Slots | None:
        """The tasks of each stage, where they could be counted."""
        return self.report.slots

    def follow_flow(self, starved: str, visible: VisibleRecords) -> None:
        """See to it, from now on, that every partition is read; otherwise ``stop`` with an error or ``warn``."""
        self._flow = FlowWatch(self.query, self.name, visible, stops=starved == "stop")
        self._flow.start()

    @property
    def starved(self) -> str:
        """What is not being read right now, in words; or nothing."""
        return self._flow.found if self._flow is not None else ""

    @property
    def checkpoint(self) -> str:
        """Where its progress is saved."""
        return self._checkpoint.location

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self.query.isActive)

    def end_at(self, bound: "Bound") -> None:
        """Let it end by itself, after the first checkpoint at or past the bound; ``wait`` sees to it."""
        self._bound = bound

    def wait(self, timeout_s: float | None = None, stop: threading.Event | None = None) -> bool:
        """Wait until the query ends, or ``stop`` is set, or time is up; return whether it ended.

        Raises:
            TailraceError: The query ended with an error.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        stop = stop or threading.Event()
        while self._still_runs():
            self._end_if_done()
            remaining = _LOOK_EVERY_S if deadline is None else min(_LOOK_EVERY_S, deadline - time.monotonic())
            if remaining <= 0 or stop.wait(remaining):
                return False
        self.raise_if_failed()
        return True

    def _end_if_done(self) -> None:
        """End a bounded run at the first checkpoint that has everything in it."""
        if self._bound is None or self._latest is None or not self._bound.is_reached(self._latest):
            return
        if self._bound.alone:
            self.query.stop()
            self._bound = None
        elif self.watch is not None and self.watch.end_after(int(self._latest["batchId"])):
            # The next batch has begun, perhaps with more that has arrived: what it processes must be saved, too.
            self._ending = self.watch
            self._bound = None

    def _still_runs(self) -> bool:
        """Whether it runs, noting what it has done meanwhile."""
        try:
            self._note_progress()
            active = self.is_active or (self._ending is not None and not self._ending.has_ended())
        except (Py4JError, OSError) as gone:
            self._checkpoint.release()
            raise QueryFailed(
                f"Spark's JVM ended while query {self.name!r} ran",
                why="the operating system may have killed it for want of memory",
                fix="start it again: it goes on from its last checkpoint",
            ) from gone
        return active

    def raise_if_failed(self) -> None:
        """Raise what ended the query, if something did, in the user's words."""
        if self._flow is not None:
            self._flow.end()  # it may just be about to say why it stopped the query
        if self._flow is not None and self._flow.failed is not None:
            self._await_last_counts()
            self._checkpoint.release()
            raise self._flow.failed
        text = failure_text(self.query)
        if text is not None:
            self._await_last_counts()
            self._checkpoint.release()
            raise translate_failure(self.name, text, runs_in_microbatch=self.report.runs_in_microbatch)

    def stop(self) -> RunSummary:
        """Stop the query and let go of its checkpoint.

        In real time the records since the last checkpoint were processed but not yet saved as done: the next start
        processes them again.
        """
        if self._flow is not None:
            self._flow.end()
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            self._note_progress()
        try:
            self.query.stop()
            self._await_last_counts()
        except (PySparkException, Py4JError, OSError) as failed:
            raise QueryFailed(f"query {self.name!r} could not be stopped", why=str(failed).splitlines()[0]) from failed
        finally:
            self._checkpoint.release()
        return self.summary()

    def summary(self) -> RunSummary:
        """What it did so far."""
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            self._note_progress()
        return RunSummary(
            self.name,
            str(self.mode),
            round(time.monotonic() - self._started_at, 1),
            len(self._seen_batches),
            sum(self._seen_batches.values()),
            self.checkpoint,
            self._malformed(),
            tuple(finding.as_json() for finding in self.why_microbatch),
            self.python_costs(),
        )

    def python_costs(self) -> dict[str, FunctionCost]:
        """What its Python functions cost until a few seconds ago; nothing where Spark itself runs them."""
        if self._costs is not None:
            with contextlib.suppress(PySparkException, Py4JError, OSError):
                self._last_costs = self._costs.read()
                self._checkpoint.save_costs({name: asdict(cost) for name, cost in self._last_costs.items()})
        return self._last_costs

    def _malformed(self) -> dict[str, int]:
        with contextlib.suppress(PySparkException, Py4JError, OSError):
            self._last_malformed = malformed_in_all(self._counts)
        return self._last_malformed

    def _await_last_counts(self) -> None:
        """Wait until the tasks of a stopped query have ended: the last of their counts come with that."""
        deadline = time.monotonic() + _COUNTS_TIMEOUT_S
        watched: list[RecordCounts | FunctionCosts] = list(self._counts)
        if self._costs is not None:
            watched.append(self._costs)
        while watched and has_tasks_at_work(self.query) and time.monotonic() < deadline:
            time.sleep(0.05)
        for counts in watched:
            counts.settle()
            counts.close()
        if self.watch is not None:
            self.watch.close()

    def _note_progress(self) -> None:
        """Remember each completed batch; Spark itself keeps only the last hundred."""
        for progress in self.query.recentProgress:
            batch: dict[str, Any] = dict(progress) if isinstance(progress, dict) else progress.__dict__
            number = batch.get("batchId", batch.get("_batchId"))
            rows = batch.get("numInputRows", batch.get("_numInputRows", 0))
            if number is not None:
                self._seen_batches[int(number)] = int(rows or 0)
                self._latest = batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@contextlib.contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, instead of ending the program in the middle of something."""
    asked = threading.Event()

    def ask(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            # Asked before, and still here: whoever asks again wants out.
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before: dict[signal.Signals, Callable[[int, FrameType | None], Any] | int | None] = {
        number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
