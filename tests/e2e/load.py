"""A load of numbered records, sent while a query runs, stops and starts."""

import json
import threading
import time
from collections.abc import Sequence
from typing import Self

from confluent_kafka import Producer
from conftest import Kafka

_EVERY_S = 0.02


class Load:
    """Sends numbered records to the partitions of its topics in turn until it is stopped.

    Args:
        kafka: The broker.
        topics: The topics, which have equally many partitions.
        per_second: How many records to send, by the clock: on a busy machine more at once and less often.
        partitions: How many partitions of each topic get records.
    """

    def __init__(self, kafka: Kafka, topics: Sequence[str], per_second: int = 500, partitions: int = 2) -> None:
        self._kafka = kafka
        self._topics = topics
        self._per_second = per_second
        self._partitions = partitions
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0
        self.seconds = 0.0
        """How long it has sent."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _value(self, number: int) -> bytes:
        return json.dumps({"a": number}).encode()

    def _send(self) -> None:
        producer = Producer({**self._kafka.config, "linger.ms": 0})
        began = time.monotonic()
        while not self._ended.wait(_EVERY_S):
            self.seconds = time.monotonic() - began
            while self.sent < self.seconds * self._per_second:
                topic = self._topics[self.sent % len(self._topics)]
                partition = self.sent // len(self._topics) % self._partitions
                producer.produce(topic, self._value(self.sent), partition=partition)
                self.sent += 1
            producer.poll(0)
        assert producer.flush(20) == 0
