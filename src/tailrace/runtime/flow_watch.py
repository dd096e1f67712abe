"""A thread that looks after the flow of a real-time query for as long as it runs."""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine import running_stages, runs_in_real_time, unread_partitions
from tailrace.errors import PartitionsStarved, QueryRefused, TailraceError
from tailrace.runtime.flow import Flow, Starved
from tailrace.runtime.visible_records import VisibleRecords

_LOOK_EVERY_S = 2.0
_log = logging.getLogger("tailrace")


class FlowWatch:
    """Looks at a query every two seconds; stops it, or warns, where a partition is not read."""

    def __init__(self, query: StreamingQuery, name: str, visible: VisibleRecords, *, stops: bool) -> None:
        self._query = query
        self._name = name
        self._stops = stops
        self._flow = Flow(visible)
        self._unread: tuple[str, ...] = ()
        self._batch: int | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"flow of {name}", daemon=True)
        self.found = ""
        """What is not being read right now, in words; or nothing."""
        self.failed: TailraceError | None = None
        """Why the query was stopped, if it was."""

    def start(self) -> None:
        """Look from now on."""
        self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                if not self._query.isActive:
                    return
                self._look()
            except (PySparkException, Py4JError, OSError):
                continue  # Spark is ending, or a question came at the wrong moment
            except Exception:  # noqa: BLE001 - a watch that ends in silence would be what it is there against
                _log.exception("query %r: its flow could not be looked at", self._name)

    def _look(self) -> None:
        stages, latest = running_stages(self._query), self._latest()
        self._require_real_time(latest)
        if any(stage.waiting for stage in stages):
            # A batch may end between the two questions: then the last answer is as good.
            self._unread = unread_partitions(self._query) or self._unread
        elif stages:
            self._unread = ()
        starved = self._flow.look(stages, latest, time.monotonic())
        if starved is not None and starved.waiting:
            starved = replace(starved, partitions=self._unread or starved.partitions)
        said, self.found = self.found, starved.in_words if starved is not None else ""
        if starved is None or (said and not self._stops):
            return
        if self._stops:
            self._stop_for(self._error(starved))
        else:
            _log.warning("query %r: %s", self._name, starved.in_words)

    def _require_real_time(self, latest: Mapping[str, Any] | None) -> None:
        """Every batch has a plan of its own: none may fall back in silence."""
        batch = latest.get("batchId") if latest is not None else None
        if batch == self._batch:
            return
        self._batch = batch
        if not runs_in_real_time(self._query):
            self._stop_for(
                QueryRefused(
                    f"query {self._name!r} was started in real time, but Spark does not run it so any more",
                    why="its running plan has no real-time scan",
                )
            )

    def _stop_for(self, reason: TailraceError) -> None:
        """Stop the query; where that fails it is tried again at the next look."""
        _log.error("stopping: %s", reason)
        self._query.stop()
        self.failed = reason
        self._ended.set()

    def _latest(self) -> Mapping[str, Any] | None:
        last = self._query.lastProgress
        return dict(last) if last is not None else None

    def _error(self, starved: Starved) -> PartitionsStarved:
        if starved.waiting:
            why = f"{starved.waiting} of its tasks have no slot: a topic gained partitions, or another job took slots"
            fix = "start it again with as many slots as tasks (tailrace check counts them); starved='warn' only warns"
        else:
            why = "they have records, and two batches in a row have read none of them"
            fix = "start it again; should it come back, look at those partitions' broker; starved='warn' only warns"
        return PartitionsStarved(f"query {self._name!r}: {starved.in_words}", why=why, fix=fix)
