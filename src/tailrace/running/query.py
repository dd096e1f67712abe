"""A running query: wait for it, stop it, ask what it did and why it ended."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.checkpoint import Checkpoint
from tailrace.conditions.failures import translate_failure
from tailrace.engine import (
    FunctionCost,
    FunctionCosts,
    OutputTopics,
    RecordCounts,
    failure_text,
    has_jvm_ended,
    has_tasks_at_work,
    malformed_in_all,
)
from tailrace.errors import QueryFailed, QueryRefused, TailraceError
from tailrace.pipeline import Mode
from tailrace.plan.delivery import AT_LEAST_ONCE, EFFECTIVELY_ONCE
from tailrace.plan.slots import Slots
from tailrace.preflight.report import CheckReport
from tailrace.prepare.endpoint import Endpoint
from tailrace.running.broker_watch import BrokerWatch, Ping
from tailrace.running.ending import Ending
from tailrace.running.flow_watch import FlowWatch
from tailrace.running.partition_watch import PartitionWatch
from tailrace.running.positions import Position, read_positions
from tailrace.running.progress import Progress
from tailrace.running.saving import SavedCheckpoint, Saving
from tailrace.running.summary import RunSummary
from tailrace.running.topic_watch import TopicWatch
from tailrace.running.visible_records import VisibleRecords

if TYPE_CHECKING:
    from tailrace.preflight.finding import Finding

_POLL_EVERY_S = 0.2
_POLL_BOUNDED_EVERY_S = 0.02
_COUNTS_TIMEOUT_S = 3.0
_TASKS_END_EVERY_S = 0.02
_MAY_STILL_RUN = "the query may still run, so its checkpoint stays locked"
_SPARK_FAILED = (PySparkException, Py4JError, OSError)
"""What a call to Spark may raise, even if its JVM is gone."""


def jvm_ended(name: str) -> QueryFailed:
    """Return the error for a query whose JVM is gone."""
    return QueryFailed(
        f"Spark's JVM ended while query {name!r} ran",
        why="the operating system may have killed it because memory ran out",
        fix="start it again: it continues from its last checkpoint",
    )


class RunningQuery:
    """A started query. It locks its checkpoint until it has stopped or failed."""

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
        ending: Ending,
    ) -> None:
        self.query = query
        """PySpark's own handle, for everything else."""
        self.name = name
        self.mode = mode
        self.report = report
        """The report of the check before the start."""
        self._flow: FlowWatch | None = None
        self._brokers: list[BrokerWatch] = []
        self._partitions: PartitionWatch | None = None
        self._topics: TopicWatch | None = None
        self._endpoints: tuple[Endpoint, ...] = ()
        self.is_effectively_once = False
        """Whether a start after a crash leaves out the results that exist."""
        self.lost_lineage = ""
        """What its outputs do not say about a record's origin, in words; empty if nothing is lost."""
        self.sink_topic = ""
        """The topic that it writes to; empty if each row names one."""
        self._ending = ending
        self._saving = Saving(name, ending.control, mode) if ending.control is not None else None
        self.is_over = False
        """Whether it is known to have ended."""
        self.bounded = False
        """Whether it ends by itself when it has read what was in its topics at the start."""
        self._checkpoint = checkpoint
        self._counts = tuple(counts)
        self._costs = costs
        self.refused: RecordCounts | None = None
        """The counts of the results that Kafka refused, if the engine writes them."""
        self._last_refused: dict[str, int] = {}
        self._last_costs: dict[str, FunctionCost] = {}
        self._last_malformed: dict[str, int] = {}
        self._last_unsaved = 0
        self._failure: TailraceError | None = None
        self._failure_raised = False
        self._started_at = time.monotonic()
        self._progress = Progress(query, ending)
        self._final: RunSummary | None = None

    @property
    def slots(self) -> Slots | None:
        """The tasks of each stage; None if they could not be counted."""
        return self.report.slots

    @property
    def why_microbatch(self) -> "Sequence[Finding]":
        """With ``mode="auto"``: why it runs in micro-batch: the errors in real time."""
        return self.report.why_microbatch

    def follow_flow(self, starved: str, visible: VisibleRecords) -> None:
        """Start to watch that every partition is read; otherwise ``stop`` with an error or ``warn``."""
        self._flow = FlowWatch(
            self.query, self.name, visible, self._ending.control, self._progress.note, stops=starved == "stop"
        )
        self._flow.start()

    def follow_brokers(self, pings: Mapping[str, Callable[[], Ping]]) -> None:
        """Start to log when the brokers stop responding and when they respond again.

        Args:
            pings: How to connect to them, by their address.
        """
        self._brokers = [
            BrokerWatch(self.name, address, connect, self._has_ended) for address, connect in pings.items()
        ]
        for watch in self._brokers:
            watch.start()

    def follow_partitions(self, endpoints: Sequence[Endpoint], free_slots: Callable[[], int]) -> None:
        """Start to read partitions that its topics gain, in tasks of their own as far as there are slots."""
        control, self._endpoints = self._ending.control, tuple(endpoints)
        if control is not None and endpoints and not self.bounded:
            self._partitions = PartitionWatch(
                self.name, control, lambda: free_slots() // len(endpoints), self._has_ended
            )
            self._partitions.start()

    def follow_topics(self, outputs: OutputTopics | None) -> None:
        """Start to log which of its topics are created again."""
        self._topics = TopicWatch(self.name, self._ending.control, outputs, self._has_ended)
        self._topics.start()

    def positions(self) -> list[Position]:
        """Return where it is in each partition of its topics, and how far behind the end.

        Nothing in micro-batch, where Spark's progress has the offsets of each batch.
        """
        if self._ending.control is None or self.mode is not Mode.REALTIME:
            return []
        try:
            return read_positions(self._ending.control, self._endpoints)
        except _SPARK_FAILED as failed:
            raise self.unanswered(failed) from failed

    @property
    def starved(self) -> str:
        """The partitions that no task reads now, as a sentence; empty if all are read.

        Known within five seconds, like :attr:`stalled` and :attr:`slow`, and only in real time.
        """
        return self._flow.starved if self._flow is not None else ""

    @property
    def stalled(self) -> str:
        """The partitions with records that their broker does not send, or whose broker does not respond; or empty."""
        return self._flow.stalled if self._flow is not None else ""

    @property
    def slow(self) -> str:
        """The partitions of which one record or Python call takes long, or whose backlog grows; or empty."""
        return self._flow.slow if self._flow is not None else ""

    def has_functions_loaded(self) -> bool:
        """Return whether its Python workers are ready for the first record."""
        return self._costs is None or self._costs.are_loaded(self.query)

    @property
    def checkpoint_location(self) -> str:
        """The folder in which its progress is saved."""
        return self._checkpoint.location

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return bool(self.query.isActive)

    def wait(self, timeout_s: float | None = None, stop: threading.Event | None = None) -> bool:
        """Wait until the query ends, ``stop`` is set, or the timeout passes; return whether it ended.

        Raises:
            TailraceError: The query ended with an error.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        stop = stop or threading.Event()
        every_s = _POLL_BOUNDED_EVERY_S if self.bounded else _POLL_EVERY_S
        while self._still_runs():
            remaining = every_s if deadline is None else min(every_s, deadline - time.monotonic())
            if remaining <= 0 or stop.wait(remaining):
                return False
        self.raise_if_failed()
        return True

    def _still_runs(self) -> bool:
        """Note its progress and return whether it runs. Spark calls a query inactive before its last commit."""
        try:
            ended = self._ending.has_ended()
            self._progress.note_sometimes()
        except _SPARK_FAILED as failed:
            raise self.unanswered(failed) from failed
        self.is_over = self.is_over or ended
        return not ended

    def checkpoint(self, timeout_s: float = 60.0) -> SavedCheckpoint:
        """Save its progress now and wait until that is done; records that arrive meanwhile wait for the pause.

        In micro-batch, wait for the commit of the running batch; return at once if none runs.

        Args:
            timeout_s: How long to wait.

        Returns:
            The number of the batch that was saved, and how long no record was read.

        Raises:
            CheckpointTimeout: It took longer; the query keeps running.
            TailraceError: The query failed or is being stopped, or its source cannot end a batch.
        """
        if self._saving is None:
            raise QueryRefused(
                f"query {self.name!r} cannot be checkpointed on request",
                why="Spark's own source reads its records until the checkpoint interval is over",
                fix="use the versions of Spark and its Kafka connector that tailrace doctor shows",
            )
        try:
            return self._saving.checkpoint(timeout_s, self._require_running)
        except _SPARK_FAILED as failed:
            raise self.unanswered(failed) from failed

    def _require_running(self) -> None:
        """Raise if it has failed, has ended or is being stopped."""
        if self.is_active and not self._ending.is_requested:
            return
        self.raise_if_failed()
        raise QueryFailed(
            f"query {self.name!r} is not running", why="it has ended or is being stopped", fix="start it again"
        )

    def raise_if_failed(self) -> None:
        """Raise the error that ended the query, if it failed."""
        try:
            if self.is_active:
                return
            failure = self._find_failure()
        except _SPARK_FAILED as failed:
            raise self.unanswered(failed) from failed
        if failure is not None:
            self._conclude()
            self._failure_raised = True
            raise failure

    def stop(self, timeout_s: float | None = None) -> RunSummary:
        """Save what it has read, stop it and release its checkpoint: the next start repeats nothing.

        If the records that were read are not processed in time, it stops without saving them: ``repeats`` in the
        summary says so, and the next start processes them again.

        Args:
            timeout_s: How long the records that were read may take; by default ``stop_timeout`` of the run.

        Raises:
            TailraceError: The query had failed, and ``wait`` has not raised that yet; or it could not be stopped, and
                its checkpoint stays locked because it may still run.
        """
        failure = None
        try:
            with contextlib.suppress(*_SPARK_FAILED):
                # Before the stop: what Spark reports later may be caused by the stop.
                failure = self._find_failure()
                self._progress.note()
            if failure is None:
                self._ending.end(timeout_s)
                failure = self._find_failure()
            self.query.stop()
            self._ending.settle()
        except (KeyboardInterrupt, SystemExit):  # a second signal
            self._stop_at_once()
            raise
        except _SPARK_FAILED as failed:
            if has_jvm_ended(failed):
                failure = self._note_jvm_end(failed)
            elif self._may_run():
                raise QueryFailed(
                    f"query {self.name!r} could not be stopped",
                    why=_first_line(failed),
                    fix=f"call stop() again: {_MAY_STILL_RUN}",
                ) from failed
        self._conclude()
        if failure is not None and not self._failure_raised:
            self._failure_raised = True
            raise failure
        self._final = self._summarize()
        return self._final

    def skip_saving(self) -> None:
        """Let a stop that has not begun save nothing, so that it does not wait for the running batch."""
        self._ending.interrupt()

    def _stop_at_once(self) -> None:
        """Stop without saving; a signal must not leave a query without a handle."""
        try:
            with contextlib.suppress(*_SPARK_FAILED):
                self.query.stop()
                self._ending.settle()
        finally:  # one more signal
            if self._has_ended():
                self._close()

    def _conclude(self) -> None:
        """Take the last counts of a query that has ended and release its checkpoint, whatever interrupts that."""
        try:
            self._settle_counts()
            self.python_costs()  # saved while the checkpoint is locked
        finally:
            self._close()

    def _close(self) -> None:
        try:
            if self._ending.control is not None:
                with contextlib.suppress(*_SPARK_FAILED):
                    self._ending.control.close()  # notes the end while the checkpoint is locked
        finally:
            try:
                self._checkpoint.release()
            finally:
                self.is_over = True

    def _find_failure(self) -> TailraceError | None:
        """Return the error that ended the query, if it failed; the query has ended, or is about to."""
        self._end_watches()
        if self._flow is not None:
            self._failure = self._failure or self._flow.failed
        if self._failure is None:
            text = failure_text(self.query)
            if text is not None:
                alternative = self.report.runs_in_microbatch
                self._failure = translate_failure(self.name, text, self.sink_topic, runs_in_microbatch=alternative)
        return self._failure

    def _end_watches(self) -> None:
        if self._partitions is not None:
            self._partitions.end()
        if self._topics is not None:
            self._topics.end()
        for watch in self._brokers:
            watch.end()
        if self._flow is not None:
            self._flow.end()  # it may be about to set why it stopped the query

    def unanswered(self, failed: Exception) -> TailraceError:
        """Return the error for a call that Spark did not answer."""
        if has_jvm_ended(failed):
            self._end_watches()
            self._close()
            self._failure_raised = True
            return self._note_jvm_end(failed)
        return QueryFailed(
            f"Spark did not answer a call about query {self.name!r}",
            why=_first_line(failed),
            fix=f"call stop(): {_MAY_STILL_RUN}",
        )

    def _note_jvm_end(self, failed: Exception) -> TailraceError:
        if self._failure is None:
            self._failure = jvm_ended(self.name)
            self._failure.__cause__ = failed
        return self._failure

    def _may_run(self) -> bool:
        try:
            return self.is_active
        except _SPARK_FAILED:
            return True

    def _has_ended(self) -> bool:
        try:
            return not self.is_active
        except _SPARK_FAILED as failed:
            return has_jvm_ended(failed)

    def summary(self) -> RunSummary:
        """Return what it has done so far, or until its stop."""
        return self._final or self._summarize()

    def _summarize(self) -> RunSummary:
        with contextlib.suppress(*_SPARK_FAILED):
            self._progress.note()
        return RunSummary(
            self.name,
            str(self.mode),
            round(time.monotonic() - self._started_at, 1),
            self._progress.batches,
            self._progress.input_rows,
            self.checkpoint_location,
            self._malformed(),
            tuple(finding.as_json() for finding in self.why_microbatch),
            self.python_costs(),
            self._uncommitted_rows(),
            self._refused_results(),
            self._ending.repeats,
            EFFECTIVELY_ONCE if self.is_effectively_once else AT_LEAST_ONCE,
        )

    def _uncommitted_rows(self) -> int:
        """Count the records that tasks have read and no completed batch has saved."""
        with contextlib.suppress(*_SPARK_FAILED):
            if self._ending.control is not None:
                self._last_unsaved = self._ending.control.unsaved_records()
            elif self.mode is Mode.REALTIME:
                read = sum(counts.read() for counts in self._counts)
                self._last_unsaved = max(0, read - self._progress.input_rows)
        return self._last_unsaved

    def python_costs(self) -> dict[str, FunctionCost]:
        """Return what its Python functions cost until a few seconds ago; nothing if Spark itself runs them."""
        if self._costs is not None:
            with contextlib.suppress(*_SPARK_FAILED):
                self._last_costs = self._costs.read()
                self._checkpoint.save_costs({name: asdict(cost) for name, cost in self._last_costs.items()})
        return self._last_costs

    def _malformed(self) -> dict[str, int]:
        with contextlib.suppress(*_SPARK_FAILED):
            self._last_malformed = malformed_in_all(self._counts)
        return self._last_malformed

    def _refused_results(self) -> dict[str, int]:
        if self.refused is not None:
            with contextlib.suppress(*_SPARK_FAILED):
                self._last_refused = self.refused.malformed()
        return self._last_refused

    def _settle_counts(self) -> None:
        """Wait for the last counts of a stopped query, if Spark still answers."""
        with contextlib.suppress(*_SPARK_FAILED):
            self._await_last_counts()

    def _await_last_counts(self) -> None:
        """Wait until the tasks of a stopped query have ended: they and their readers send their last counts then."""
        deadline = time.monotonic() + _COUNTS_TIMEOUT_S
        watched: list[RecordCounts | FunctionCosts] = list(self._counts)
        watched.extend(each for each in (self.refused, self._costs) if each is not None)
        while has_tasks_at_work(self.query) and time.monotonic() < deadline:
            time.sleep(_TASKS_END_EVERY_S)
        for counts in watched:
            counts.settle()
            counts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, raised: BaseException | None, _trace: object) -> None:
        if raised is None:
            self.stop()
            return
        try:
            self.stop()
        except Exception as failed:  # noqa: BLE001 - what the block raised must not be replaced
            raised.add_note(f"while stopping query {self.name!r}: {failed}")


def _first_line(failed: Exception) -> str:
    return next(iter(str(failed).splitlines()), type(failed).__name__)
