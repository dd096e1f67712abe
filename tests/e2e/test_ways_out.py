"""Each finding on the real Spark: it is there, and its way out makes it go away. Nothing is started."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from corpus import Sources
from pyspark.sql import functions as F

import tailrace as tr
from tailrace import engine
from tailrace.preflight import checks

MINIMUM = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
ONLY_IN_A_CLUSTER = {"EXECUTORS_MISSING"}
FIXED_WITH_THE_CONTEXT = {"SHUFFLE_TIMER", "SHUFFLE_UNAUTHENTICATED"}
OF_A_BROKER = {"BROKER_UNREACHABLE", "RIGHTS_UNKNOWN", "SLOTS_UNKNOWN"}
OF_A_CHECKPOINT = {"CHECKPOINT_FOREIGN", "CHECKPOINT_FORMAT_OLD", "CHECKPOINT_PARTITIONS"}
IN_TEST_ONCE = {"CHECKPOINT_OUTGROWN"}
"""These have tests of their own: tests/unit/preflight, and of checkpoints below."""


@dataclass(frozen=True)
class Way:
    """What to check, and with which options of the check."""

    build: Callable[[Sources], Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def kafka_writer(s: Sources, rows: Any, **options: str) -> Any:
    writer = rows.selectExpr("to_json(struct(*)) as value").writeStream.format("kafka").outputMode("update")
    return writer.option("kafka.bootstrap.servers", s.servers).option("topic", s.other).options(**options)


def windowed(s: Sources, length: str) -> Any:
    return s.events().withWatermark("time", "1 minute").groupBy(F.window("time", length)).count()


def by_python(s: Sources) -> Any:
    return s.events().select(F.udf(lambda number: number, "double")("amount").alias("amount"))


def twice(s: Sources) -> Any:
    events = s.events()
    return events.where("amount > 5").union(events.where("amount <= 5"))


def counted_then_united(s: Sources) -> Any:
    return s.events().groupBy("key").count().union(s.events(s.other).select("key", F.lit(1).cast("long")))


REALTIME, MICROBATCH = {"mode": "realtime"}, {"mode": "microbatch"}
WAYS: dict[str, tuple[Way, tuple[Way, ...]]] = {
    "SLOTS_MISSING": (
        Way(lambda s: s.events().groupBy("key").count(), {"conf": {"spark.sql.shuffle.partitions": "20"}}),
        (
            Way(lambda s: s.events().groupBy("key").count(), {"conf": {"spark.sql.shuffle.partitions": "6"}}),
            Way(lambda s: s.events().groupBy("key").count(), MICROBATCH),
        ),
    ),
    "SHUFFLE_PARTITIONS_MANY": (
        Way(lambda s: s.events().groupBy("key").count(), {"conf": {"spark.sql.shuffle.partitions": "200"}}),
        (Way(lambda s: s.events().groupBy("key").count()),),
    ),
    "SETTING_REFUSED": (
        Way(lambda s: s.events(), {"conf": {"spark.sql.execution.sortBeforeRepartition": "true"}}),
        (
            Way(lambda s: s.events()),
            Way(lambda s: s.events(), {"conf": {"spark.sql.execution.sortBeforeRepartition": "true"}, **MICROBATCH}),
        ),
    ),
    "QUERY_REFUSED": (
        Way(lambda s: s.events().groupBy("key").agg(F.countDistinct("id"))),
        (Way(lambda s: s.events().groupBy("key").agg(F.approx_count_distinct("id"))),),
    ),
    "OPERATOR_REFUSED": (
        Way(lambda s: s.events().coalesce(1)),
        (Way(lambda s: s.events()), Way(lambda s: s.events().coalesce(1), MICROBATCH)),
    ),
    "PYTHON_FUNCTION": (
        Way(by_python),
        (Way(lambda s: s.events().select("amount")), Way(by_python, MICROBATCH)),
    ),
    "SOURCE_TWICE": (Way(twice), (Way(lambda s: s.events().where("amount > 5").union(s.events())),)),
    "STATE_BELOW_UNION": (
        Way(counted_then_united),
        (Way(lambda s: s.events().union(s.events(s.other)).groupBy("key").count()),),
    ),
    "SOURCE_REFUSED": (
        Way(lambda s: s.spark.readStream.format("rate").load()),
        (Way(lambda s: s.events()), Way(lambda s: s.spark.readStream.format("rate").load(), MICROBATCH)),
    ),
    "SOURCE_OPTION_REFUSED": (Way(lambda s: s.events(maxOffsetsPerTrigger="10")), (Way(lambda s: s.events()),)),
    "SOURCE_OPTION_IGNORED": (Way(lambda s: s.events(failOnDataLoss="false")), (Way(lambda s: s.events()),)),
    "SOURCE_SLOW": (Way(lambda s: s.events(**{"kafka.fetch.min.bytes": "65536"})), (Way(lambda s: s.events()),)),
    "SINK_REFUSED": (
        Way(lambda s: s.events().writeStream.format("memory").queryName("way")),
        (Way(lambda s: kafka_writer(s, s.events())),),
    ),
    "OUTPUT_MODE_REFUSED": (
        Way(lambda s: kafka_writer(s, s.events().groupBy("key").count()).outputMode("complete")),
        (Way(lambda s: kafka_writer(s, s.events().groupBy("key").count()).outputMode("update")),),
    ),
    "SINK_SLOW": (
        Way(lambda s: kafka_writer(s, s.events(), **{"kafka.linger.ms": "50"})),
        (Way(lambda s: kafka_writer(s, s.events())),),
    ),
    "PYTHON_FOREACH": (
        Way(lambda s: s.events().writeStream.foreach(lambda _row: None).outputMode("update")),
        (Way(lambda s: kafka_writer(s, s.events())),),
    ),
    "STATE_UNBOUNDED": (
        Way(lambda s: s.events().withWatermark("time", "10 minutes").dropDuplicates(["id"])),
        (Way(lambda s: s.events().withWatermark("time", "10 minutes").dropDuplicates(["id", "time"])),),
    ),
    "WATERMARK_LATE": (
        Way(lambda s: windowed(s, "5 minutes")),
        (Way(lambda s: windowed(s, "5 minutes"), {"checkpoint_every": "15s"}),),
    ),
    "STATIC_SIDE_REBUILT": (
        Way(lambda s: s.events().join(F.broadcast(s.static()), "key"), {"checkpoint_every": "5s"}),
        (Way(lambda s: s.events().join(F.broadcast(s.static()), "key"), {"checkpoint_every": "60s"}),),
    ),
    "RECOVERY_LONG": (Way(lambda s: s.events(), {"checkpoint_every": "1h"}), (Way(lambda s: s.events()),)),
    "REALTIME_NOT_NEEDED": (Way(lambda s: windowed(s, "1 hour")), (Way(lambda s: windowed(s, "1 hour"), MICROBATCH),)),
}


@pytest.fixture(scope="module")
def sources(spark: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    kafka = Kafka(broker.bootstrap_servers)
    topics = [kafka.topic("ways", 2), kafka.topic("ways-other", 1), kafka.topic("ways-wide", 12)]
    return Sources(spark, broker.bootstrap_servers, *topics, str(tmp_path_factory.mktemp("ways")))


def codes(way: Way, sources: Sources, folder: Path) -> set[str]:
    options = dict(way.options)
    report = tr.check(way.build(sources), **{"checkpoint": folder / "checkpoint", **options})
    return {finding.code for finding in report.findings}


def test_every_code_has_a_way_out_here_or_a_reason_why_not() -> None:
    elsewhere = ONLY_IN_A_CLUSTER | FIXED_WITH_THE_CONTEXT | OF_A_CHECKPOINT | IN_TEST_ONCE | OF_A_BROKER
    assert set(WAYS) | elsewhere == {each.CODE for each in checks.ALL}


@pytest.mark.parametrize("code", WAYS)
def test_the_way_out_makes_the_finding_go_away(code: str, sources: Sources, tmp_path: Path) -> None:
    bad, ways_out = WAYS[code]
    assert code in codes(bad, sources, tmp_path)
    for way in ways_out:
        assert code not in codes(way, sources, tmp_path)


def test_the_number_in_the_way_out_fits(sources: Sources, tmp_path: Path) -> None:
    def counted() -> Any:
        return sources.events().repartition(3, "id").groupBy("key").count()

    def slots_missing(partitions: str) -> list[Any]:
        conf = {"spark.sql.shuffle.partitions": partitions}
        return [each for each in tr.check(counted(), conf=conf).findings if each.code == "SLOTS_MISSING"]

    (finding,) = slots_missing("20")
    told = re.search(r"--shuffle-partitions (\d+)", finding.fix)
    assert told is not None
    assert slots_missing(told.group(1)) == []
    assert slots_missing(str(int(told.group(1)) + 1)) != [], "it is the largest that fits"


def test_a_checkpoint_of_another_query_with_another_format_and_other_partitions(
    sources: Sources, tmp_path: Path
) -> None:
    """Each of the three is found in a real checkpoint, and a folder of its own is the way out."""
    own = engine.clone_session(sources.spark)
    own.conf.set("spark.sql.shuffle.partitions", "3")
    own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    theirs = engine.writer_on(kafka_writer(sources, sources.events().groupBy("key").count()), own)
    query = theirs.option("checkpointLocation", str(tmp_path / "theirs")).trigger(availableNow=True).start()
    query.awaitTermination(60)
    ours = kafka_writer(sources, sources.events(sources.wide).groupBy("key").count()).queryName("ours")
    asked = {"conf": {"spark.sql.shuffle.partitions": "5"}}
    found = {each.code for each in tr.check(ours, checkpoint=tmp_path / "theirs", **asked).findings}
    assert found >= OF_A_CHECKPOINT
    fresh = {each.code for each in tr.check(ours, checkpoint=tmp_path / "ours", **asked).findings}
    assert not fresh & OF_A_CHECKPOINT
    format_old = tr.check(ours, "microbatch", checkpoint=tmp_path / "theirs", **asked)
    assert "CHECKPOINT_FORMAT_OLD" not in {each.code for each in format_old.findings}
    assert "only micro-batch may go on" in format_old.checkpoint
