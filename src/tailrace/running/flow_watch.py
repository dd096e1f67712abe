"""A thread that watches whether a running real-time query reads every partition, and what its readers wait for."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine import (
    RunControl,
    StageTasks,
    has_jvm_ended,
    running_stages,
    runs_in_real_time,
    unread_partitions,
)
from tailrace.errors import PartitionsStarved, QueryRefused, TailraceError, counted
from tailrace.running.flow import Flow, Starved
from tailrace.running.visible_records import VisibleRecords
from tailrace.running.waits import WaitHistory, Waits

_POLL_EVERY_S = 1.0
_PROGRESS_EVERY = 2
"""Every second check also reads Spark's progress, which is long."""
_SAY_AGAIN_S = 60.0
"""A state that comes and goes is logged at most this often."""
_BLIND_S = 30.0
"""How long checks may fail before a warning: a few always fail while Spark ends."""
_UNCHECKED = "its partitions could not be checked"
_log = logging.getLogger("tailrace")


def not_in_real_time(name: str) -> QueryRefused:
    """Return the error for a query that runs, but not in real time."""
    return QueryRefused(
        f"query {name!r} was started in real time, but Spark does not run it in real time",
        why="its running plan has no real-time scan",
    )


class FlowWatch:
    """Checks a query every second; stops it, or warns, if a partition is not read. It only warns of other waits."""

    def __init__(
        self,
        query: StreamingQuery,
        name: str,
        visible: VisibleRecords,
        control: RunControl | None,
        note_progress: Callable[[], None] = lambda: None,
        *,
        stops: bool,
    ) -> None:
        """Watch a query.

        Args:
            query: The query.
            name: Its name.
            visible: Returns the end of partitions as a consumer sees it.
            control: Its control, which knows what its readers wait for; None if they are Spark's own.
            note_progress: Called every few seconds: Spark keeps only the last hundred batches.
            stops: Whether to stop the query, or only warn.
        """
        self._note_progress = note_progress
        self._query = query
        self._name = name
        self._stops = stops
        self._control = control
        self._flow = Flow(visible)
        self._history = WaitHistory()
        self._waits = Waits()
        self._polls = 0
        self._logged: dict[str, float] = {}
        """When each kind of state was logged."""
        self._latest: Mapping[str, Any] | None = None
        self._unread: tuple[str, ...] = ()
        self._batch: int | None = None
        self._blind_since: float | None = None
        self._said_blind = False
        self._ended = threading.Event()
        self._deciding = threading.Lock()
        """Guards the moment of a decision to stop the query: none is made after the end."""
        self._thread = threading.Thread(target=self._run, name=f"flow of {name}", daemon=True)
        self.starved = ""
        """What no task reads now, as a sentence; empty if everything is read."""
        self.failed: TailraceError | None = None
        """Why the query was stopped, or will be."""

    @property
    def stalled(self) -> str:
        """What waits for a broker, as a sentence; empty if nothing does."""
        return self._waits.for_broker

    @property
    def slow(self) -> str:
        """What waits for the query itself, as a sentence; empty if nothing does."""
        return self._waits.for_query

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching, without waiting for a look that has begun: ``failed`` stays as it is from now on."""
        with self._deciding:
            self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_EVERY_S):
            try:
                if not self._query.isActive:
                    return
                if self.failed is None:
                    self._poll()
                else:
                    self._stop()
                self._blind_since, self._said_blind = None, False
            except (PySparkException, Py4JError, OSError) as failed:
                if has_jvm_ended(failed):
                    return
                self._note_blind(failed)  # Spark may be ending, or a batch just ended
            except Exception:  # noqa: BLE001 - a watch must not end silently
                _log.exception("query %r: %s", self._name, _UNCHECKED)

    def _note_blind(self, failed: Exception) -> None:
        """Warn once if the query has not been watched for a while."""
        now = time.monotonic()
        self._blind_since = now if self._blind_since is None else self._blind_since
        if not self._said_blind and now - self._blind_since >= _BLIND_S:
            self._said_blind = True
            what = "it could not be stopped" if self.failed is not None else _UNCHECKED
            reason = (str(failed).strip() or type(failed).__name__).splitlines()[0]
            _log.warning("query %r: %s in the last %.0f s: %s", self._name, what, now - self._blind_since, reason)

    def _poll(self) -> None:
        if self._polls % _PROGRESS_EVERY == 0:
            self._note_progress()
            self._latest = self._last_progress()
        self._polls += 1
        stages = running_stages(self._query)
        readers = self._control.positions() if self._control is not None else None
        if not self._is_real_time(self._latest):
            self._stop_for(not_in_real_time(self._name))
            return
        now = time.monotonic()
        if readers is not None:
            self._note_waits(self._history.update(readers, now), now)
        starved = self._flow.update(stages, self._latest, readers, now)
        if starved is not None and starved.waiting:
            starved = replace(starved, partitions=self._without_slots(stages) or starved.partitions)
        self._note_starved(starved, now)

    def _without_slots(self, stages: Sequence[StageTasks]) -> tuple[str, ...]:
        """Return the partitions whose tasks have no slot, as far as Spark reports them."""
        if any(stage.waiting for stage in stages):
            # A batch may end between the two calls: then the last result still holds.
            self._unread = unread_partitions(self._query) or self._unread
        elif stages:
            self._unread = ()
        return self._unread

    def _note_starved(self, starved: Starved | None, now: float) -> None:
        self.starved = starved.in_words if starved is not None else ""
        if starved is None:
            return
        if self._stops and starved.lasts:
            self._stop_for(self._error(starved))
        else:
            self._log("starved", starved.in_words, now)

    def _note_waits(self, waits: Waits, now: float) -> None:
        self._waits = waits
        if waits.stalled:  # the broker watch logs brokers that do not respond at all
            self._log("stalled", waits.for_broker, now)
        if waits.for_query:
            self._log("slow", waits.for_query, now)

    def _log(self, kind: str, what: str, now: float) -> None:
        """Log a state when it begins; it has ended if it was not seen for a while."""
        if now - self._logged.get(kind, -_SAY_AGAIN_S) >= _SAY_AGAIN_S and not self._ended.is_set():
            _log.warning("query %r: %s", self._name, what)
        self._logged[kind] = now

    def _is_real_time(self, latest: Mapping[str, Any] | None) -> bool:
        """Return whether the running batch reads continuously: each has its own plan."""
        batch = latest.get("batchId") if latest is not None else None
        if batch == self._batch:
            return True
        in_real_time = runs_in_real_time(self._query)
        self._batch = batch
        return in_real_time

    def _stop_for(self, reason: TailraceError) -> None:
        """Stop the query; if that fails, the next check tries again."""
        if self._query.exception() is not None:
            return  # it is ending, for a reason that Spark reports
        with self._deciding:
            if self._ended.is_set():
                return
            _log.info("stopping query %r: %s", self._name, reason.what)  # wait() raises the error
            # Set before the stop: wait() reads it as soon as the query has stopped.
            self.failed = reason
        self._stop()

    def _stop(self) -> None:
        self._query.stop()
        self._ended.set()

    def _last_progress(self) -> Mapping[str, Any] | None:
        last = self._query.lastProgress
        return dict(last) if last is not None else None

    def _error(self, starved: Starved) -> PartitionsStarved:
        if starved.waiting:
            without = f"{counted(starved.waiting, 'task')} without a slot"
            why = f"{without}: another job took slots, or an executor is gone"
            fix = "start it again with as many slots as tasks, or with fewer --tasks"
        else:
            why = "several batches in a row read none of their records"
            fix = "start it again; if it happens again, check the broker of those partitions"
        fix += "; or pass starved='warn' to keep running"
        return PartitionsStarved(f"query {self._name!r}: {starved.in_words}", why=why, fix=fix)
