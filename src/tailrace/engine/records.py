"""Read and check records in the engine, and count them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tailrace.engine.gateway import classic_of, tailrace_of
from tailrace.pipeline import RESERVED_PREFIX

RECORD = RESERVED_PREFIX + "record"
"""The column for a record's parsed content."""
_LARGEST = 2**31 - 1


class RecordCounts:
    """The number of records that a query has read, in all tasks that have ended."""

    def __init__(self, check: Any) -> None:
        self._check = check

    @property
    def jvm(self) -> Any:
        """The engine's object."""
        return self._check

    def watch(self) -> None:
        """Also include the counts of stopped tasks from now on."""
        self._check.killed().open()

    def uses(self, frame: DataFrame) -> int:
        """Return how often a frame reads the counted source."""
        return int(tailrace_of(frame.sparkSession).SourceReads.count(frame._jdf, self._check))

    def malformed(self) -> dict[str, int]:
        """Return the number of malformed records by reason."""
        return {reason: number for reason, number in sorted(self._value().items()) if reason}

    def read(self) -> int:
        """Return the number of all records, malformed ones included."""
        return sum(self._value().values())

    def settle(self) -> None:
        """Wait for the counts of stopped tasks."""
        self._check.killed().settle(2000)

    def close(self) -> None:
        """Stop counting."""
        self._check.killed().close()

    def _value(self) -> dict[str, int]:
        return {str(reason): int(number) for reason, number in dict(self._check.counts().value()).items()}


def malformed_in_all(every: Iterable[RecordCounts]) -> dict[str, int]:
    """Return the malformed records of several sources, by reason."""
    total: Counter[str] = Counter()
    for counts in every:
        total.update(counts.malformed())
    return dict(total)


@dataclass(frozen=True)
class RecordCheck:
    """How to read records, and what to do with a malformed one.

    Attributes:
        format: ``json``, ``string`` or ``bytes``.
        schema: The columns in a record, as JSON.
        json_options: Options of Spark's JSON reader.
        policy: ``dead-letter``, ``drop`` or ``fail``.
        pipeline: The pipeline's name, for dead letters.
        dead_letter_topic: Their topic.
        producer: The configuration of the Kafka producer that writes them.
        source: The number of the source in the pipeline.
    """

    format: str
    schema: str
    json_options: Mapping[str, str]
    policy: str
    pipeline: str
    dead_letter_topic: str | None
    producer: Mapping[str, str] = field(repr=False)
    source: int


def read_records(raw: DataFrame, check: RecordCheck) -> tuple[DataFrame, RecordCounts]:
    """Return the well-formed records, parsed in the column ``RECORD``, and the counts of all records."""
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
        check.source,
    )
    return DataFrame(records.read(raw._jdf, checker), spark), RecordCounts(checker)


def separate_reads(frame: DataFrame) -> DataFrame:
    """Return the same rows, for which each use of a source is a read of its own."""
    return DataFrame(tailrace_of(frame.sparkSession).SourceReads.separate(frame._jdf), frame.sparkSession)


def carry_lineage(frame: DataFrame, *, python: bool) -> DataFrame:
    """Return the same rows with the hidden columns of their records, if the operators can carry them.

    Args:
        frame: The rows.
        python: Whether Python functions are the engine's, which then knows the record that each call is about.
    """
    return DataFrame(tailrace_of(frame.sparkSession).Lineage.carry(frame._jdf, python), frame.sparkSession)


def with_lineage_headers(frame: DataFrame, into: str, own: str | None, topic: str | None) -> DataFrame:
    """Return the frame with lineage headers added to the user's headers in ``own``; hidden columns stay.

    Args:
        frame: The rows.
        into: The column for all headers.
        own: The column with the user's headers; None if there are none.
        topic: The sink's topic; None if each row names its own.
    """
    result = tailrace_of(frame.sparkSession).Lineage.withHeaders(frame._jdf, into, own, topic)
    return DataFrame(result, frame.sparkSession)


@dataclass(frozen=True)
class SizeLimits:
    """The largest record that a sink accepts.

    Attributes:
        topic: Its topic; None if each row names one.
        max_request_size: The producer's.
        max_message_bytes: The topic's; None if it is not known, or if the producer compresses.
    """

    topic: str | None
    max_request_size: int
    max_message_bytes: int | None = None


def require_sizes(frame: DataFrame, limits: SizeLimits) -> DataFrame:
    """Return the rows of a Kafka sink without hidden columns; a row that is too large ends the query with an error."""
    sizes = tailrace_of(frame.sparkSession).SizeCheck
    return DataFrame(sizes.check(frame._jdf, jvm_size_check(frame.sparkSession, limits)), frame.sparkSession)


def jvm_size_check(spark: SparkSession, limits: SizeLimits) -> Any:
    """Return the engine's object for these limits."""
    largest = _LARGEST if limits.max_message_bytes is None else min(limits.max_message_bytes, _LARGEST)
    return tailrace_of(spark).SizeCheck(limits.topic, min(limits.max_request_size, _LARGEST), largest)
