"""A thread that lets a running real-time query read the partitions that its topics gain.

Spark plans partitions when a batch begins, in real time every few minutes. If there are new partitions, the watch ends
the batch. It asks only the engine, which polls the brokers. Before it ends a batch it counts the free slots: other
queries of the same Spark may have started.
"""

import logging
import threading
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tailrace.engine import RunControl
from tailrace.errors import counted

_POLL_EVERY_S = 1.0
_COUNTS = 4
_COUNT_EVERY_S = 0.2
"""Slots are counted several times: between two batches another query uses none for a moment."""
_log = logging.getLogger("tailrace")


class PartitionWatch:
    """Compares the partitions of a query's topics with those that it reads.

    Args:
        name: The name of the query.
        control: Its control.
        free_tasks: Counts the tasks for which each source would get a slot now.
        has_ended: Whether it has ended.
    """

    def __init__(
        self, name: str, control: RunControl, free_tasks: Callable[[], int], has_ended: Callable[[], bool]
    ) -> None:
        self._name = name
        self._control = control
        self._free_tasks = free_tasks
        self._has_ended = has_ended
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"partitions of {name}", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_POLL_EVERY_S) and not self._has_ended():
            try:
                self.poll()
            except (PySparkException, Py4JError, OSError):
                continue  # Spark may be ending; the next poll may succeed
            except Exception:  # noqa: BLE001 - a watch must not end silently
                _log.exception("query %r: its topics could not be checked for new partitions", self._name)

    def poll(self) -> None:
        """End the batch if there are partitions that it does not read."""
        new = self._control.new_partitions()
        if not new:
            return
        free = self._fewest_free_tasks()
        if not self._ended.is_set():
            _log.info("query %r: reading %s: %s", self._name, counted(len(new), "new partition"), ", ".join(new))
            self._control.allow_tasks(free)
            self._control.end_batch()

    def _fewest_free_tasks(self) -> int:
        fewest = self._free_tasks()
        for _ in range(_COUNTS - 1):
            self._ended.wait(_COUNT_EVERY_S)
            fewest = min(fewest, self._free_tasks())
        return fewest
