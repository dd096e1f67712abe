"""The input of a pipeline under test."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from tailrace.errors import DefinitionError
from tailrace.pipeline import Pipeline

MODES: Final = ("batch", "microbatch", "realtime")


class _Checkpoint:
    def __repr__(self) -> str:
        return "CHECKPOINT"


CHECKPOINT: Final = _Checkpoint()
"""Between rows: the rows before it are processed and saved before the rows after it are sent.

The watermark moves there, in both modes. Spark drops late records by the watermark that the batch before left: in
real time a late record is dropped only after two checkpoints, in micro-batches after one. A batch has no such
moments and takes all rows at once.
"""


@dataclass(frozen=True)
class Record:
    """A whole Kafka record, for tests that need more than a value.

    Attributes:
        value: A dictionary becomes JSON, text becomes UTF-8, bytes and None stay as they are.
        key: Its key.
        headers: Its headers.
        topic: Where a pipeline reads several topics: which of them.
        partition: 0 or 1; by default records go to both alternately.
        timestamp: Kafka's timestamp; now by default.
    """

    value: Mapping[str, Any] | str | bytes | None
    key: str | bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    topic: str | None = None
    partition: int | None = None
    timestamp: datetime | None = None


Row = Mapping[str, Any] | str | bytes | Record | _Checkpoint


def steps(pipeline: Pipeline, rows: Sequence[Row]) -> list[list[Record]]:
    """Return the rows as records with topics, split at each checkpoint."""
    parted: list[list[Record]] = [[]]
    for row in rows:
        if isinstance(row, _Checkpoint):
            parted.append([])
        else:
            parted[-1].append(_with_topic(pipeline, row if isinstance(row, Record) else Record(row)))
    return parted


def encoded(value: Mapping[str, Any] | str | bytes | None) -> bytes | None:
    """Return a value as Kafka's bytes."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), default=_as_text).encode()
    return value


def _with_topic(pipeline: Pipeline, record: Record) -> Record:
    if record.topic is not None:
        return record
    named = [name for source in pipeline.sources for name in source.topic_names]
    if len(pipeline.sources) > 1 or not named:
        raise DefinitionError(
            f"pipeline {pipeline.name!r} has several sources, or a pattern: which topic is {record.value!r} for?",
            fix='Record({...}, topic="payments")',
        )
    return Record(record.value, record.key, record.headers, named[0], record.partition, record.timestamp)


def _as_text(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
