"""The outputs of a pipeline, read from its topics by an ordinary consumer."""

import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition
from numpy.typing import NDArray

from tailrace.frames.names import Header
from tailrace.kafka.topics import ClientConfig
from tailrace.measure.audit import unread_end
from tailrace.measure.traffic.probe import origin_number
from tailrace.pipeline import HEADER_PREFIX

NO_ORIGIN = -1
_AT_ONCE = 1000
_WAIT_S = 0.1
_TIMEOUT_S = 30.0

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Outputs:
    """The records of one output topic; each partition in its order.

    Attributes:
        origins: The partition and offset of each output's source record as one number, or ``NO_ORIGIN``.
        contents: A hash of each output's key, value and headers, without Tailrace's own.
        keys: A hash of each output's key.
        partitions: The partition of each output.
    """

    origins: Numbers
    contents: Numbers
    keys: Numbers
    partitions: Numbers

    def __len__(self) -> int:
        return len(self.origins)

    @property
    def have_origins(self) -> bool:
        """Whether every output names its source record."""
        return not bool(np.any(self.origins == NO_ORIGIN))


def origin_of(message: Message) -> int:
    """Return the source partition and offset in an output's headers as one number, or ``NO_ORIGIN``."""
    headers = dict(message.headers() or ())  # of two headers with one name, the last counts
    partition, offset = headers.get(Header.PARTITION), headers.get(Header.OFFSET)
    if partition is None or offset is None:
        return NO_ORIGIN
    return origin_number(int(partition), int(offset))


def read_outputs(client: ClientConfig, topic: str, begin: Mapping[int, int], end: Mapping[int, int]) -> Outputs:
    """Read a topic between two offsets of each partition.

    Raises:
        MeasurementFailed: The broker did not send all of it.
    """
    left = {partition: until for partition, until in end.items() if until > begin.get(partition, 0)}
    columns = [array("q") for _ in range(4)]
    consumer = Consumer({**client, "group.id": "tailrace-chaos", "enable.auto.commit": False, "log_level": 0})
    try:
        consumer.assign([TopicPartition(topic, partition, begin.get(partition, 0)) for partition in left])
        heard = time.monotonic()
        while left:
            messages = consumer.consume(_AT_ONCE, _WAIT_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _TIMEOUT_S:
                raise unread_end(topic, _TIMEOUT_S)
            for message in messages:
                _take(message, left, columns)
    finally:
        consumer.close()
    origins, contents, keys, partitions = (np.array(column, dtype=np.int64) for column in columns)
    return Outputs(origins, contents, keys, partitions)


def _take(message: Message, left: dict[int, int], columns: "list[array[int]]") -> None:
    partition, offset = message.partition() or 0, message.offset() or 0
    until = left.get(partition)
    if message.error() is not None or until is None:
        return
    if offset < until:
        own = tuple(pair for pair in message.headers() or () if not str(pair[0]).startswith(HEADER_PREFIX))
        key = message.key()
        row = (origin_of(message), hash((key, message.value(), own)), hash(key), partition)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    if offset + 1 >= until:
        del left[partition]
