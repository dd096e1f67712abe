"""Replay letters through their pipeline once, beside the running query."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.replay import source_of
from tailrace.errors import OptionRefused
from tailrace.frames.sink import HEADERS
from tailrace.pipeline import Mode, Pipeline
from tailrace.preflight.query import STATEFUL
from tailrace.prepare.batch import run_batch
from tailrace.prepare.options import RunOptions
from tailrace.prepare.prepare import prepare, target_of
from tailrace.prepare.target import Announce
from tailrace.prepare.writer_target import NOWHERE

_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
"""The columns of Spark's Kafka source."""
_KEEPS_STATE = (
    *STATEFUL,
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "SessionWindowStateStore",
    "StreamingGlobalLimit",
    "TransformWithState",
)
"""The prefixes of the names of all operators that keep state, also those that run only in micro-batch."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ToPipeline:
    """Runs the pipeline's function as a batch in which letters stand for the records of its sources.

    The rows have the coordinates, timestamp and headers of the original records, so the outputs and new dead letters
    name these. Topics of the sources and the checkpoint are not used.
    """

    def __init__(self, pipeline: Pipeline, spark: SparkSession, bootstrap_servers: str) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._bootstrap_servers = bootstrap_servers

    def replay(self, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
        """Process letters.

        Raises:
            TailraceError: The batch failed; some of its outputs may have been written.
        """

        def read(own: SparkSession) -> list[DataFrame]:
            numbers = [source_of(self._pipeline, letter) for letter in letters]
            return [
                _records([letter for letter, source in zip(letters, numbers, strict=True) if source == number], own)
                for number in range(len(self._pipeline.sources))
            ]

        run_batch(self._pipeline, self._spark, self._bootstrap_servers, read)
        for letter in letters:
            on_done(letter)


@contextmanager
def replaying_pipeline(
    pipeline: Pipeline,
    bootstrap_servers: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    announce: Announce | None = None,
) -> Iterator[ToPipeline]:
    """Check that a pipeline would run and keeps no state, and start Spark.

    Args:
        pipeline: The pipeline.
        bootstrap_servers: The brokers.
        master: The Spark master.
        conf: Spark settings.
        announce: Receives one line for each step that takes long.

    Raises:
        OptionRefused: The pipeline keeps state.
        TailraceError: It would not run.
    """
    options = RunOptions(
        Mode.MICROBATCH, bootstrap_servers=bootstrap_servers, master=master, conf=conf or {}, checkpoint=NOWHERE
    )
    # Private: records that fit no schema are here on purpose.
    target = target_of(pipeline, options, private=True)
    with prepare(target, options, dry_run=True, announce=announce) as prepared:
        prepared.require_ok()
        stateful = list(prepared.query.operators(*_KEEPS_STATE))
        if stateful:
            node = stateful[-1]
            place = f" ({node.line})" if node.line else ""
            raise OptionRefused(
                f"pipeline {pipeline.name!r} keeps state, so its letters cannot be replayed beside it{place}",
                why="a run of its own would not use the state of the running query, and its results would be wrong",
                fix="--to source sends the records to the running query",
            )
        if prepared.built is None:
            raise AssertionError(f"{pipeline.name}: an error of its query is in the report")
        yield ToPipeline(pipeline, prepared.built.frame.sparkSession, bootstrap_servers)


def _records(letters: Sequence[Letter], spark: SparkSession) -> DataFrame:
    """Return the original records of letters, in one partition, so that they keep their order.

    An RDD, because Spark's optimizer would run the pipeline's first operators on local rows in the driver.
    """
    return spark.createDataFrame(spark.sparkContext.parallelize([_row(letter) for letter in letters], 1), _COLUMNS)


def _row(letter: Letter) -> tuple[Any, ...]:
    moment = _EPOCH + timedelta(milliseconds=letter.event_time_ms)
    record = letter.record
    origin = letter.topic, letter.partition, letter.offset, moment
    return record.key, record.value, *origin, 0, list(record.headers)
