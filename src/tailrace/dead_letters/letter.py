"""One dead letter: a record of the dead-letter topic, and what Tailrace's headers say about it."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from tailrace.frames.names import Header
from tailrace.kafka.records import TopicRecord, as_text
from tailrace.pipeline import HEADER_PREFIX

_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, which Python's dates do not pass."""


REFUSED_RESULTS = frozenset({"too_large", "invalid_record", "invalid_topic"})
"""The reasons of letters that hold a result which Kafka refused; ``jvm/kafka/KafkaSink.scala`` has the same."""


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Attributes:
        record: The record in the dead-letter topic; key, value and the first headers are those of the original record,
            or of its result if Kafka refused that.
        topic: The topic of the original record.
        partition: Its partition.
        offset: Its offset.
        event_time_ms: Its Kafka timestamp.
        reason: Why it is a dead letter.
        error: The same as a sentence.
        pipeline: The name of the pipeline that wrote the letter.
        time_ms: When the pipeline read the original record.
        attempt: How often a pipeline has tried to process the record.
    """

    record: TopicRecord
    topic: str
    partition: int
    offset: int
    event_time_ms: int
    reason: str
    error: str
    pipeline: str
    time_ms: int
    attempt: int

    @classmethod
    def of(cls, record: TopicRecord) -> Self | None:
        """Return the letter in a record; None if Tailrace did not write the record."""
        # The last header of a name counts: a record that was replayed has those of its earlier attempts, too.
        last = dict(record.headers)
        texts = {header: as_text(last.get(header)) for header in Header}
        try:
            partition, offset, event_time_ms, time_ms, attempt = (
                int(texts[header] or "")
                for header in (Header.PARTITION, Header.OFFSET, Header.EVENT_TIME, Header.TIME, Header.ATTEMPT)
            )
        except ValueError:
            return None
        topic, pipeline = texts[Header.TOPIC], texts[Header.PIPELINE]
        if not topic or not pipeline or max(abs(event_time_ms), abs(time_ms)) > _LATEST_MS:
            return None
        reason, error = texts[Header.REASON] or "", texts[Header.ERROR] or ""
        return cls(record, topic, partition, offset, event_time_ms, reason, error, pipeline, time_ms, attempt)

    @property
    def at(self) -> str:
        """The coordinates of the original record."""
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def place(self) -> str:
        """The place of the letter in the dead-letter topic."""
        return f"{self.record.partition}@{self.record.offset}"

    @property
    def holds_result(self) -> bool:
        """Whether it holds a result of the pipeline instead of the original record."""
        return self.reason in REFUSED_RESULTS

    @property
    def own_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers that are not Tailrace's."""
        return tuple((name, value) for name, value in self.record.headers if not name.startswith(HEADER_PREFIX))


def newest(letters: Iterable[Letter], limit: int) -> tuple[list[Letter], int]:
    """Return the newest letters, the newest first, and the number of all."""
    kept: list[tuple[tuple[int, int, int], Letter]] = []
    total = 0
    for total, letter in enumerate(letters, 1):  # noqa: B007 - the last number is the total
        entry = (letter.time_ms, letter.record.partition, letter.record.offset), letter
        if len(kept) < limit:
            heapq.heappush(kept, entry)
        else:
            heapq.heappushpop(kept, entry)
    return [letter for _, letter in sorted(kept, reverse=True)], total
