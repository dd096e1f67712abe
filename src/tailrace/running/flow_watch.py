"""A thread that watches whether a running real-time query reads every partition."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine import has_jvm_ended, running_stages, runs_in_real_time, unread_partitions
from tailrace.errors import PartitionsStarved, QueryRefused, TailraceError, counted
from tailrace.running.flow import Flow, Starved
from tailrace.running.visible_records import VisibleRecords

_LOOK_EVERY_S = 2.0
_BLIND_S = 30.0
"""How long checks may fail before a warning: a few always fail while Spark ends."""
_log = logging.getLogger("tailrace")


class FlowWatch:
    """Checks a query every two seconds; stops it, or warns, if a partition is not read."""

    def __init__(
        self,
        query: StreamingQuery,
        name: str,
        visible: VisibleRecords,
        note_progress: Callable[[], None] = lambda: None,
        *,
        stops: bool,
    ) -> None:
        """Watch a query.

        Args:
            query: The query.
            name: Its name.
            visible: Returns the end of partitions as a consumer sees it.
            note_progress: Called at every check: Spark keeps only the last hundred batches.
            stops: Whether to stop the query, or only warn.
        """
        self._note_progress = note_progress
        self._query = query
        self._name = name
        self._stops = stops
        self._flow = Flow(visible)
        self._unread: tuple[str, ...] = ()
        self._batch: int | None = None
        self._blind_since: float | None = None
        self._said_blind = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"flow of {name}", daemon=True)
        self.starved = ""
        """What is not read now, as a sentence; empty if everything is."""
        self.failed: TailraceError | None = None
        """Why the query was stopped, or will be."""

    def start(self) -> None:
        """Start to watch."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                if not self._query.isActive:
                    return
                if self.failed is None:
                    self._look()
                else:
                    self._stop()
                self._blind_since, self._said_blind = None, False
            except (PySparkException, Py4JError, OSError) as failed:
                if has_jvm_ended(failed):
                    return
                self._note_blind(failed)  # Spark may be ending, or a batch just ended
            except Exception:  # noqa: BLE001 - a watch must not end silently
                _log.exception("query %r: its flow could not be checked", self._name)

    def _note_blind(self, failed: Exception) -> None:
        """Warn once if the query has not been watched for a while."""
        now = time.monotonic()
        self._blind_since = now if self._blind_since is None else self._blind_since
        if not self._said_blind and now - self._blind_since >= _BLIND_S:
            self._said_blind = True
            what = "it could not be stopped" if self.failed is not None else "its partitions could not be checked"
            reason = (str(failed).strip() or type(failed).__name__).splitlines()[0]
            _log.warning("query %r: %s in the last %.0f s: %s", self._name, what, now - self._blind_since, reason)

    def _look(self) -> None:
        self._note_progress()
        stages, latest = running_stages(self._query), self._latest()
        if not self._is_real_time(latest):
            self._stop_for(
                QueryRefused(
                    f"query {self._name!r} was started in real time, but Spark no longer runs it in real time",
                    why="its running plan has no real-time scan",
                )
            )
            return
        if any(stage.waiting for stage in stages):
            # A batch may end between the two calls: then the last result still holds.
            self._unread = unread_partitions(self._query) or self._unread
        elif stages:
            self._unread = ()
        starved = self._flow.look(stages, latest, time.monotonic())
        if starved is not None and starved.waiting:
            starved = replace(starved, partitions=self._unread or starved.partitions)
        said, self.starved = self.starved, starved.in_words if starved is not None else ""
        if starved is None or (said and not self._stops):
            return
        if self._stops:
            self._stop_for(self._error(starved))
        else:
            _log.warning("query %r: %s", self._name, starved.in_words)

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
        if self._ended.is_set() or self._query.exception() is not None:
            return  # it is ending, for a reason that Spark reports
        _log.info("stopping query %r: %s", self._name, reason.what)  # wait() raises the error
        # Set before the stop: wait() reads it as soon as the query has stopped.
        self.failed = reason
        self._stop()

    def _stop(self) -> None:
        self._query.stop()
        self._ended.set()

    def _latest(self) -> Mapping[str, Any] | None:
        last = self._query.lastProgress
        return dict(last) if last is not None else None

    def _error(self, starved: Starved) -> PartitionsStarved:
        if starved.waiting:
            without = f"{counted(starved.waiting, 'task')} without a slot"
            why = f"{without}: another job took slots, or an executor is gone"
            fix = "start it again with as many slots as tasks, or with fewer --tasks; starved='warn' only warns"
        else:
            why = "they have records, and batch after batch has read none of them"
            fix = "start it again; if it happens again, check the broker of those partitions; starved='warn' only warns"
        return PartitionsStarved(f"query {self._name!r}: {starved.in_words}", why=why, fix=fix)
