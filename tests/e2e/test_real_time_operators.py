"""Operators that run in real time though Spark's allowlist does not contain them."""

from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from test_modes import pipeline, start

from tailrace import engine
from tailrace.kafka.topics import log_ends
from tailrace.testing import CHECKPOINT, at, run
from tailrace.tuning import query_settings

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = "id long, card string, at timestamp"
ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
SHORT = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}


def once_each(payments: DataFrame) -> DataFrame:
    return payments.withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["id"])


def payment(number: int, time: str) -> dict[str, Any]:
    return {"id": number, "card": "c", "at": at(time)}


def test_a_duplicate_is_dropped_until_the_watermark_has_passed_it(kafka: Kafka, mode: str) -> None:
    here = pipeline(kafka, once_each, schema=SCHEMA)
    first = [payment(1, "12:00"), payment(1, "12:00:20"), CHECKPOINT, payment(1, "12:00:40"), payment(2, "12:01")]
    forgotten = [payment(3, "12:30"), CHECKPOINT, CHECKPOINT, CHECKPOINT, payment(1, "12:30:30")]
    assert sorted(row["id"] for row in run(here, first, mode).rows) == [1, 2]
    here = pipeline(kafka, once_each, schema=SCHEMA)
    assert sorted(row["id"] for row in run(here, first + forgotten, mode).rows) == [1, 1, 2, 3]


def test_the_modes_continue_each_others_state(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    here = pipeline(kafka, once_each, schema=SCHEMA)
    topic = here.sources[0].topic_names[0]
    for number, mode in enumerate(["realtime", "microbatch", "realtime"], start=1):
        with start(kafka, here, mode, tmp_path / "c"):
            kafka.send(topic, [{"id": each, "card": "c", "at": f"2026-01-01T12:00:0{number}Z"} for each in (0, number)])
            received = kafka.receive_count(here.sink.topic, number + 1)
    assert sorted(value["id"] for _, value in received) == [0, 1, 2, 3]
    assert sum(log_ends(kafka.config, {here.sink.topic: 2})[here.sink.topic].values()) == 4


def test_every_batch_is_checked_and_only_this_query(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    """The running query, not only the check before its start, refuses what Spark's own check would refuse."""
    own = engine.clone_session(spark)
    for key, value in {**query_settings(realtime=True, local=True), **SHORT}.items():
        own.conf.set(key, value)
    topic = kafka.topic("payments")
    raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    events = raw.option("subscribe", topic).load().selectExpr("value", "timestamp as at", "offset as id")
    frame = engine.frame_on(once_each(events).coalesce(1).select("value"), own)
    engine.allow_operators(frame)
    assert (own.conf.get(ALLOWLIST), spark.conf.get(ALLOWLIST)) == ("false", "true")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.option("topic", kafka.topic("out")).option("checkpointLocation", str(tmp_path)).outputMode("update")
    query = engine.with_trigger(writer, realtime=True, interval_ms=1000, once=False).start()
    wait_until(lambda: query.exception() is not None, 60, "the end of the query")
    with pytest.raises(PySparkException, match=r"NOT_IN_ALLOWLIST.*CoalesceExec is not") as refused:
        raise query.exception()
    assert "Deduplicate" not in str(refused.value).split("\n")[0]


def test_other_queries_keep_sparks_check(spark: Any, kafka: Kafka) -> None:
    own = engine.clone_session(spark)
    raw = own.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    engine.allow_operators(raw.option("subscribe", kafka.topic("payments")).load().dropDuplicates(["key"]))
    assert own.conf.get(ALLOWLIST) == "true"


def test_another_version_of_spark_keeps_its_own_list(spark: Any) -> None:
    sessions = spark._jvm.org.apache.spark.sql.tailrace.QuerySessions
    known = {version: sessions.isKnown(version) for version in ("4.3.0", "4.3.1", "4.4.0", "5.0.0")}
    assert known == {"4.3.0": True, "4.3.1": True, "4.4.0": False, "5.0.0": False}
