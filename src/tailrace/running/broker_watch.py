"""A thread that logs when the brokers of a running query stop responding, and when they respond again.

Spark itself waits for a lost broker without a message.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from confluent_kafka import KafkaException
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace.engine import SparkBrokerPing
from tailrace.errors import BrokerUnreachable, KafkaError
from tailrace.kafka.reachable import BrokerPing
from tailrace.plan.streams import StreamRead, WriterSettings
from tailrace.prepare.endpoint import SERVERS, Endpoint

_ASK_EVERY_S = 5.0
_ASK_AGAIN_S = 1.0
_FAILURES = 2
"""Questions in a row without an answer: one may be lost on a busy machine."""
_log = logging.getLogger("tailrace")


class Ping(Protocol):
    """A connection to the brokers at one address."""

    def ask(self) -> KafkaError | None:
        """Return None if a broker responds, or the error if none does."""

    def close(self) -> None:
        """Disconnect."""


class BrokerWatch:
    """Asks the brokers at one address every few seconds for as long as a query runs."""

    def __init__(self, name: str, address: str, connect: Callable[[], Ping], has_ended: Callable[[], bool]) -> None:
        self._name = name
        self._address = address
        self._connect = connect
        self._has_ended = has_ended
        self._ended = threading.Event()
        self._failures = 0
        self._logged: type[KafkaError] | None = None
        """The kind of the problem that the log names; None while the brokers respond."""
        self._answered_at = time.monotonic()
        """When a broker last responded; at first the query's start, which has just asked the same brokers."""
        self._thread = threading.Thread(target=self._run, name=f"broker of {name}", daemon=True)

    def start(self) -> None:
        """Ask from now on."""
        self._thread.start()

    def end(self) -> None:
        """Stop; do not wait for a pending request."""
        self._ended.set()

    def _run(self) -> None:
        try:
            ping = self._connect()
        except KafkaException as failed:
            _log.warning("query %r: its brokers cannot be watched: %s", self._name, failed)
            return
        try:
            self._watch(ping)
        finally:
            with contextlib.suppress(PySparkException, Py4JError, OSError):  # Spark may be gone
                ping.close()

    def _watch(self, ping: Ping) -> None:
        delay = _ASK_EVERY_S
        while not self._ended.wait(delay) and not self._has_ended():
            try:
                problem = ping.ask()
            except (Py4JError, OSError):
                continue  # Spark's JVM does not respond, which says nothing about the brokers
            if self._ended.is_set():
                return
            self.note(problem, now=time.monotonic())
            delay = _ASK_EVERY_S if problem is None else _ASK_AGAIN_S

    def note(self, problem: KafkaError | None, *, now: float) -> None:
        """Record the result of a ping; log a change of state."""
        if problem is None:
            if self._failures >= _FAILURES:
                silent_s = now - self._answered_at
                _log.warning(
                    "query %r: the Kafka broker at %s responds again after %.0f s",
                    self._name,
                    self._address,
                    silent_s,
                )
            self._answered_at = now
            self._failures = 0
            self._logged = None
            return
        self._failures += 1
        if self._failures < _FAILURES or type(problem) is self._logged:
            return
        self._logged = type(problem)
        if isinstance(problem, BrokerUnreachable):
            _log.warning("query %r: no Kafka broker responds at %s", self._name, self._address)
        else:  # for example, a refused login
            _log.warning("query %r: %s: %s", self._name, problem.what, problem.why)


def broker_pings(
    reads: Sequence[StreamRead], sink: WriterSettings | None, spark: SparkSession | None
) -> Mapping[str, Callable[[], Ping]]:
    """Return how to connect to the brokers of a query, by their address."""
    pings: dict[str, Callable[[], Ping]] = {}
    for options in (*(read.options for read in reads), *([sink.options] if sink is not None else [])):
        endpoint = Endpoint.of(options, spark)
        address, config = endpoint.options.get(SERVERS, ""), endpoint.config
        if address and config is not None:
            pings.setdefault(address, partial(BrokerPing, config))
        elif address and spark is not None:
            pings.setdefault(address, partial(SparkBrokerPing, spark, endpoint.options))
    return pings
