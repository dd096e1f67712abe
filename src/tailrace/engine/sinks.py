"""The engine's Kafka sink for real time: results that Kafka refuses become dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tailrace.engine.functions import DeadLetterTopic, jvm_dead_letters
from tailrace.engine.gateway import classic_of, jvm_of
from tailrace.engine.records import RecordCounts, SizeLimits, jvm_size_check


@dataclass(frozen=True)
class RealTimeSink:
    """How a real-time pipeline writes to Kafka.

    Attributes:
        limits: The largest results.
        refused: The topic for results that Kafka refuses; None if they end the query.
        largest_letter: The largest dead letter, to which the value of a refused result is cut.
        counts: The counts of refused results.
    """

    limits: SizeLimits
    refused: DeadLetterTopic | None
    largest_letter: int
    counts: RecordCounts

    def start(
        self, frame: DataFrame, options: Mapping[str, str], *, name: str, location: str, interval_ms: int
    ) -> StreamingQuery:
        """Start a query that writes with this sink.

        Args:
            frame: The rows to write, with the columns of Spark's Kafka sink.
            options: The options of Spark's Kafka sink.
            name: The name of the query.
            location: Its checkpoint.
            interval_ms: Its checkpoint interval.
        """
        spark = frame.sparkSession
        letters = jvm_dead_letters(spark, self.refused)
        sizes = jvm_size_check(spark, self.limits)
        started = _starter(spark).start(
            frame._jdf,
            name,
            location,
            interval_ms,
            dict(options),
            sizes,
            letters,
            self.largest_letter,
            self.counts.jvm,
        )
        return StreamingQuery(started)


def supports_own_sink(spark: SparkSession) -> bool:
    """Return whether the engine's sink is known to work with this version of Spark."""
    return not str(jvm_of(spark).org.apache.spark.sql.kafka010.tailrace.SourceControl.unsupported())


def refused_counts(spark: SparkSession, pipeline: str) -> RecordCounts:
    """Return new counts of the results of a pipeline that Kafka refuses."""
    counts = jvm_of(spark).org.apache.spark.sql.kafka010.tailrace.RefusedCounts
    return RecordCounts(counts.of(classic_of(spark), pipeline))


def _starter(spark: SparkSession) -> Any:
    return jvm_of(spark).org.apache.spark.sql.kafka010.tailrace.SinkStart
