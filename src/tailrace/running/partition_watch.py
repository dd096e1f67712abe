"""A thread that lets a running real-time query read the partitions that its topics gain.

Spark plans partitions when a batch begins, in real time every few minutes. If there are new ones, the watch ends the
batch.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tailrace.engine import RunControl
from tailrace.errors import KafkaError, counted
from tailrace.prepare.endpoint import Endpoint

_ASK_EVERY_S = 4.0
_log = logging.getLogger("tailrace")


class PartitionWatch:
    """Asks the brokers for the partitions of a query's topics every few seconds.

    Args:
        name: The name of the query.
        endpoints: Where its sources read from. A source with the option ``assign`` never gains partitions.
        control: Its control.
        has_ended: Whether it has ended.
    """

    def __init__(
        self, name: str, endpoints: Sequence[Endpoint], control: RunControl, has_ended: Callable[[], bool]
    ) -> None:
        self._name = name
        self._endpoints = [each for each in endpoints if "assign" not in each.options]
        self._control = control
        self._has_ended = has_ended
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"partitions of {name}", daemon=True)

    def start(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def end(self) -> None:
        """Ask no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_ASK_EVERY_S) and not self._has_ended():
            try:
                self.look()
            except (KafkaError, PySparkException, Py4JError, OSError):
                continue  # the broker watch reports brokers that do not answer; the next question may succeed
            except Exception:  # noqa: BLE001 - a watch must not end silently
                _log.exception("query %r: its topics could not be checked for new partitions", self._name)

    def look(self) -> None:
        """End the batch if there are partitions that it does not read."""
        reads = self._control.partitions()
        if not reads:
            return  # no batch is planned yet
        new = sorted(self._existing() - reads)
        if new and not self._ended.is_set():
            _log.info("query %r: reading %s: %s", self._name, counted(len(new), "new partition"), ", ".join(new))
            self._control.end_batch()

    def _existing(self) -> set[str]:
        topics = [endpoint.source_partitions() or {} for endpoint in self._endpoints]
        return {f"{topic}-{number}" for each in topics for topic, count in each.items() for number in range(count)}
