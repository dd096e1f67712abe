"""An ordinary consumer of a pipeline's outputs, which sees when new output comes after a fault."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer, Message, TopicPartition

from tailrace.chaos.outputs import NO_ORIGIN, origin_of
from tailrace.errors import OptionRefused
from tailrace.kafka.topics import ClientConfig, Offsets
from tailrace.measure.traffic.probe import OFFSET_BITS

_SETTINGS = {
    "group.id": "tailrace-chaos",
    "enable.auto.commit": False,
    "socket.nagle.disable": True,
    # A broker that was restarted is found at once.
    "reconnect.backoff.max.ms": 200,
    "log_level": 0,
}
_POLL_S = 0.1
_IN_FLIGHT_S = 1.0
"""Without coordinates, output within this time after a fault may have been written before it."""


@dataclass
class Recovery:
    """The first new output after a fault: of a record that was sent after it.

    Attributes:
        sent_after: The end of each partition of the source after the fault.
        not_before: For outputs without coordinates: when new output can come at the earliest, on the monotonic clock.
        at: When it came, on the monotonic clock; None if it has not yet.
    """

    sent_after: Mapping[int, int]
    not_before: float
    at: float | None = None

    def note(self, origin: int, now: float) -> None:
        """Take an output that has come."""
        if self.at is not None:
            return
        if origin == NO_ORIGIN:
            is_new = now >= self.not_before
        else:
            end = self.sent_after.get(origin >> OFFSET_BITS)
            is_new = end is not None and origin & ((1 << OFFSET_BITS) - 1) >= end
        if is_new:
            self.at = now


class Receiver:
    """Reads the output topics in a thread."""

    def __init__(self, client: ClientConfig, ends: Offsets) -> None:
        """Begin at the given offsets of each topic."""
        self.received = sum(end for partitions in ends.values() for end in partitions.values())
        """How many outputs there are, those before the start included."""
        self.last_at = time.monotonic()
        """When the last output came."""
        self._consumer = Consumer({**client, **_SETTINGS})
        self._consumer.assign(
            [TopicPartition(topic, number, end) for topic, each in ends.items() for number, end in each.items()]
        )
        self._awaited: list[Recovery] = []
        self._failed: Exception | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="receiver", daemon=True)
        self._thread.start()

    def expect(self, sent_after: Mapping[int, int]) -> Recovery:
        """Wait for output of records after these ends of the source; return at once."""
        recovery = Recovery(dict(sent_after), time.monotonic() + _IN_FLIGHT_S)
        self._awaited = [each for each in self._awaited if each.at is None] + [recovery]
        return recovery

    def require_countable(self) -> None:
        """Check what has come so far.

        Raises:
            OptionRefused: An output has neither coordinates nor a key.
        """
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Stop reading."""
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is not None and message.error() is None:
                self._take(message)

    def _take(self, message: Message) -> None:
        now, origin = time.monotonic(), origin_of(message)
        if origin == NO_ORIGIN and message.key() is None and self._failed is None:
            self._failed = _uncountable(str(message.topic()))
        self.received += 1
        self.last_at = now
        for each in self._awaited:
            each.note(origin, now)


def _uncountable(topic: str) -> OptionRefused:
    return OptionRefused(
        f"the outputs in topic {topic!r} cannot be counted",
        why="they have neither the coordinates of their source records nor a key",
        fix="name a key column with KafkaSink(..., key=...), or keep the coordinates: see docs/concepts/lineage.md",
    )
