"""A checkpoint moves between Spark alone and Tailrace five times each way, within a mode and from one to the other."""

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from test_exact_stop import KEYS, of_counts

import tailrace as tr
from tailrace.kafka.records import read_records

pytestmark = pytest.mark.usefixtures("spark")

MODES = "rrmmrmmrrrm"
"""The modes of the runs, by Spark alone and by Tailrace in turn: each follows the other in either mode."""
NEEDED = {
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",
    "spark.sql.shuffle.partitions": "2",
}
"""What a user of Spark alone sets for real time, and so that eight slots suffice."""
KAFKA_STREAM = "org.apache.spark.sql.kafka010.KafkaMicroBatchStream"


class Query:
    """A user's query from one topic to another."""

    def __init__(self, kafka: Kafka, folder: Path, transform: Callable[[DataFrame], DataFrame]) -> None:
        self.kafka = kafka
        self.transform = transform
        self.source, self.sink = kafka.topic("in", 2), kafka.topic("out", 1)
        self.checkpoint = folder / "checkpoint"

    def writer(self, spark: SparkSession) -> DataStreamWriter:
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers}
        stream = spark.readStream.format("kafka").options(**servers, subscribe=self.source)
        records = stream.option("startingOffsets", "earliest").load()
        rows = records.select(F.get_json_object(F.col("value").cast("string"), "$.a").cast("long").alias("a"))
        results = self.transform(rows).select(F.to_json(F.struct("*")).alias("value"))
        writer = results.writeStream.format("kafka").options(**servers, topic=self.sink)
        return writer.queryName("moving").outputMode("update")

    def run_by_spark(self, spark: SparkSession, mode: str) -> None:
        """Process everything without Tailrace."""
        plain = spark.newSession()
        for key, value in NEEDED.items():
            plain.conf.set(key, value)
        writer = self.writer(plain).option("checkpointLocation", str(self.checkpoint))
        if mode == "realtime":
            realtime: Any = writer.trigger  # PySpark's type stubs lack the real-time trigger
            query = realtime(realTime="1 seconds").start()
            try:
                wait_until(partial(idle_batches, query, 2), 60, "everything is saved")
            finally:
                query.stop()
        else:
            query = writer.trigger(availableNow=True).start()
            assert query.awaitTermination(120)
        assert streams_of(query) == [KAFKA_STREAM], "Spark's own source reads the topic"

    def run_by_tailrace(self, spark: SparkSession, mode: str, *, stops: bool) -> None:
        """Process everything, first in a run that is stopped."""
        if stops:
            assert tr.start(self.writer(spark), mode, checkpoint=self.checkpoint).stop(60).repeats == ""
        summary = tr.run(self.writer(spark), mode, checkpoint=self.checkpoint, once=True)
        assert summary.repeats == ""

    def written(self) -> list[Any]:
        return [json.loads(record.value) for record in read_records(self.kafka.config, self.sink)]


def streams_of(query: StreamingQuery) -> list[str]:
    """The classes of the streams that a query reads."""
    leaves = query._jsq.streamingQuery().logicalPlan().collectLeaves()  # type: ignore[attr-defined]
    return [leaves.apply(number).stream().getClass().getName() for number in range(leaves.size())]


def idle_batches(query: StreamingQuery, wanted: int) -> bool:
    """Return whether so many batches have followed the last one with records."""
    failure = query.exception()
    assert failure is None, failure
    rows = [progress.numInputRows for progress in query.recentProgress]
    read = [number for number, count in enumerate(rows) if count]
    return bool(read) and len(rows) - 1 - read[-1] >= wanted


def unchanged(rows: DataFrame) -> DataFrame:
    return rows


def counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy((F.col("a") % KEYS).alias("key")).count()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transform", [unchanged, counted], ids=["without state", "with state"])
def test_a_checkpoint_moves_between_spark_alone_and_tailrace(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, transform: Callable[[DataFrame], DataFrame]
) -> None:
    query, sent = Query(kafka, tmp_path, transform), 0
    for number, letter in enumerate(MODES):
        mode = {"r": "realtime", "m": "microbatch"}[letter]
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(sent, sent + 20)])
        sent += 20
        if number % 2:
            query.run_by_tailrace(spark, mode, stops=number < 4)
        else:
            query.run_by_spark(spark, mode)
        if transform is counted:
            assert of_counts(query.written(), sent, every=False) == (0, 0), (number, mode)
        else:
            assert Counter(row["a"] for row in query.written()) == Counter(range(sent)), (number, mode)
