"""Records as the engine reads and checks them, and what it counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from tailrace.engine.gateway import classic_of, tailrace_of

RECORD = "__tailrace_record"
"""The column in which the engine puts a record's content."""
_LARGEST = 2**31 - 1


class RecordCounts:
    """How many records a running query has read, in all tasks that have ended so far."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def watch(self) -> None:
        """Also include the counts of stopped tasks from now on."""
        self._check.killed().open()

    def uses(self, frame: DataFrame) -> int:
        """How often a frame reads the source that is counted."""
        return int(tailrace_of(frame.sparkSession).Records.uses(frame._jdf, self._check))

    def malformed(self) -> dict[str, int]:
        """Return the number of malformed records by reason."""
        return {reason: number for reason, number in sorted(self._value().items()) if reason}

    def read(self) -> int:
        """Return the number of all records, malformed ones included."""
        return sum(self._value().values())

    def settle(self) -> None:
        """Wait until the counts of tasks that were stopped have arrived."""
        self._check.killed().settle(2000)

    def close(self) -> None:
        """Stop counting."""
        self._check.killed().close()

    def _value(self) -> dict[str, int]:
        return {str(reason): int(number) for reason, number in dict(self._check.counts().value()).items()}


def malformed_in_all(every: Iterable[RecordCounts]) -> dict[str, int]:
    """The records that could not be read, by reason, of several sources together."""
    total: Counter[str] = Counter()
    for counts in every:
        total.update(counts.malformed())
    return dict(total)


@dataclass(frozen=True)
class RecordCheck:
    """How records are read, and what happens to one that cannot be.

    Attributes:
        format: ``json``, ``string`` or ``bytes``.
        schema: The columns in a record, as JSON.
        json_options: Options of Spark's JSON reader.
        policy: ``dead-letter``, ``drop`` or ``fail``.
        pipeline: The pipeline's name, for dead letters.
        dead_letter_topic: Their topic.
        producer: The configuration of the Kafka producer that writes them.
    """

    format: str
    schema: str
    json_options: Mapping[str, str]
    policy: str
    pipeline: str
    dead_letter_topic: str | None
    producer: Mapping[str, str] = field(repr=False)


def read_records(raw: DataFrame, check: RecordCheck) -> tuple[DataFrame, RecordCounts]:
    """The good records of a frame read from Kafka, their content in the column ``RECORD``, and the counts of all."""
    spark = raw.sparkSession
    records = tailrace_of(spark).Records
    checker = records.check(
        classic_of(spark),
        check.format,
        check.schema,
        dict(check.json_options),
        check.policy,
        check.pipeline,
        check.dead_letter_topic,
        dict(check.producer),
    )
    return DataFrame(records.read(raw._jdf, checker), spark), RecordCounts(checker)


def carry_lineage(frame: DataFrame, *, python: bool) -> DataFrame:
    """The same rows with the hidden columns of their records, as far as its operators can carry them.

    Args:
        frame: The rows.
        python: Whether Python functions are the engine's, which then knows the record that each call is about.
    """
    return DataFrame(tailrace_of(frame.sparkSession).Lineage.carry(frame._jdf, python), frame.sparkSession)


def with_lineage_headers(frame: DataFrame, into: str, own: str | None) -> DataFrame:
    """The frame with a column of Kafka headers instead of the user's headers in ``own``; its hidden columns stay."""
    result = tailrace_of(frame.sparkSession).Lineage.withHeaders(frame._jdf, into, own)
    return DataFrame(result, frame.sparkSession)


@dataclass(frozen=True)
class SizeLimits:
    """The largest record that a sink takes.

    Attributes:
        topic: Its topic; None if each row names one.
        max_request_size: The producer's.
        max_message_bytes: The topic's; None if it is not known, or if the producer compresses.
    """

    topic: str | None
    max_request_size: int
    max_message_bytes: int | None = None


def require_sizes(frame: DataFrame, limits: SizeLimits) -> DataFrame:
    """The rows of a Kafka sink without hidden columns; the query ends at one that is too large, naming its record."""
    largest = _LARGEST if limits.max_message_bytes is None else min(limits.max_message_bytes, _LARGEST)
    sizes = tailrace_of(frame.sparkSession).SizeCheck
    checked = sizes.check(frame._jdf, limits.topic, min(limits.max_request_size, _LARGEST), largest)
    return DataFrame(checked, frame.sparkSession)
