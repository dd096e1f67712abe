"""Each finding on the real Spark: it is there, and its way out makes it go away. Nothing is started."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from corpus import Case, Sources, cases
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import tailrace as tr
from tailrace import engine
from tailrace.errors import UserCodeFailed
from tailrace.frames.user_code import user_code
from tailrace.preflight import checks
from tailrace.preflight.finding import Severity

MINIMUM = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
ONLY_IN_A_CLUSTER = {"EXECUTORS_MISSING"}
FIXED_WITH_THE_CONTEXT = {"SHUFFLE_TIMER", "SHUFFLE_UNAUTHENTICATED"}
OF_A_BROKER = {"BROKER_UNREACHABLE", "RIGHTS_UNKNOWN", "SLOTS_UNKNOWN"}
OF_A_CHECKPOINT = {"CHECKPOINT_FOREIGN", "CHECKPOINT_FORMAT_OLD", "CHECKPOINT_PARTITIONS"}
OF_OTHER_VERSIONS = {"BATCH_END_UNSUPPORTED"}
IN_TEST_ONCE = {"CHECKPOINT_OUTGROWN"}
IN_LOST_RECORDS = {"DATA_LOST"}
"""These have tests of their own: tests/unit/preflight, test_lost_records.py, and of checkpoints below."""


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
    "DELIVERY_REFUSED": (
        Way(lambda s: kafka_writer(s, s.events()), {"delivery": "effectively-once"}),
        (
            Way(lambda s: kafka_writer(s, s.events()), {"delivery": "at-least-once"}),
            Way(lambda s: kafka_writer(s, s.events())),
        ),
    ),
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
    "SOURCE_OPTION_IGNORED": (
        Way(lambda s: s.events(**{"kafkaConsumer.pollTimeoutMs": "10"})),
        (Way(lambda s: s.events()),),
    ),
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
    of_a_run = OF_A_CHECKPOINT | IN_TEST_ONCE | IN_LOST_RECORDS | OF_A_BROKER
    elsewhere = OF_OTHER_VERSIONS | ONLY_IN_A_CLUSTER | FIXED_WITH_THE_CONTEXT | of_a_run
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
    match = re.search(r"--shuffle-partitions (\d+)", finding.fix)
    assert match is not None
    assert slots_missing(match.group(1)) == []
    assert slots_missing(str(int(match.group(1)) + 1)) != [], "it is the largest that fits"


def test_a_checkpoint_of_another_query_with_another_format_and_other_partitions(
    sources: Sources, tmp_path: Path
) -> None:
    """Each of the three is found in a real checkpoint, and a folder of its own is the way out."""
    own = engine.clone_session(sources.spark)
    own.conf.set("spark.sql.shuffle.partitions", "3")
    own.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", "1")
    counts = kafka_writer(sources, sources.events().groupBy("key").count())
    theirs = engine.writer_of(counts, engine.frame_on(engine.writer_frame(counts), own))
    query = theirs.option("checkpointLocation", str(tmp_path / "theirs")).trigger(availableNow=True).start()
    query.awaitTermination(60)
    ours = kafka_writer(sources, sources.events(sources.wide).groupBy("key").count()).queryName("ours")
    asked = {"conf": {"spark.sql.shuffle.partitions": "5"}}
    codes = {each.code for each in tr.check(ours, checkpoint=tmp_path / "theirs", **asked).findings}
    assert codes >= OF_A_CHECKPOINT
    fresh = {each.code for each in tr.check(ours, checkpoint=tmp_path / "ours", **asked).findings}
    assert not fresh & OF_A_CHECKPOINT
    format_old = tr.check(ours, "microbatch", checkpoint=tmp_path / "theirs", **asked)
    assert "CHECKPOINT_FORMAT_OLD" not in {each.code for each in format_old.findings}
    assert "only micro-batch can continue it" in format_old.checkpoint


def test_microbatch_is_advised_only_for_queries_that_run_there(sources: Sources, tmp_path: Path) -> None:
    """For every query of the corpus that real time refuses."""
    wrong = []
    advised = 0
    for case in cases():
        if case.verdict == "runs":
            continue
        findings = tr.check(writer_of(case, sources), checkpoint=tmp_path).findings
        fixes = [each.fix for each in findings if "microbatch" in each.fix]
        advised += bool(fixes)
        if fixes and not tr.check(writer_of(case, sources), "microbatch", checkpoint=tmp_path).ok:
            wrong.append((case.name, fixes))
    assert wrong == []
    assert advised >= 10


def writer_of(case: Case, sources: Sources) -> Any:
    query = case.build(sources)
    writer = kafka_writer(sources, query) if isinstance(query, DataFrame) else query
    return writer.outputMode(case.output_mode)


def test_an_append_query_may_run_in_microbatch_where_update_may_not(sources: Sources) -> None:
    limited = sources.events().limit(5)
    fixes = {
        mode: [each.fix for each in tr.check(kafka_writer(sources, limited).outputMode(mode)).findings]
        for mode in ("append", "update")
    }
    assert any("--mode microbatch" in fix for fix in fixes["append"])
    assert not any("--mode microbatch" in fix for fix in fixes["update"])


def session_windows(s: Sources) -> Any:
    return s.events().withWatermark("time", "1 minute").groupBy(F.session_window("time", "5 minutes"), "key").count()


def newest(s: Sources) -> Any:
    ranked = F.row_number().over(Window.partitionBy("key").orderBy(F.desc("time")))
    return s.events().withColumn("rank", ranked).where("rank = 1")


def pivoted(s: Sources) -> Any:
    return s.events().groupBy("id").pivot("key", ["a", "b"]).agg(F.sum("amount"))


def unpivoted(s: Sources) -> Any:
    sums = [F.sum(F.when(F.col("key") == name, F.col("amount"))).alias(name) for name in ("a", "b")]
    return s.events().groupBy("id").agg(*sums)


def ranges(s: Sources) -> DataFrame:
    return s.spark.createDataFrame(
        [(0, 5, "low"), (5, 10, "high"), (8, 20, "both")], "low long, high long, band string"
    )


def banded(events: DataFrame, table: DataFrame, *, key: bool) -> DataFrame:
    """Every event with its bands, by a range alone or beside a constant key."""
    condition = (events.id >= table.low) & (events.id < table.high)
    if key:
        condition = (F.hash(events.id) % 1 == F.hash(table.low) % 1) & condition
    return events.join(F.broadcast(table), condition, "left")


@dataclass(frozen=True)
class Rewrite:
    """An operation that no mode runs, how it is reported, and what is advised instead."""

    bad: Callable[[Sources], Any]
    title: str
    fix: str
    good: Callable[[Sources], Any]


REWRITES = {
    "a distinct count": Rewrite(
        lambda s: s.events().groupBy("key").agg(F.countDistinct("id")),
        "a distinct aggregate cannot run",
        "F.size(F.collect_set('id'))",
        lambda s: s.events().groupBy("key").agg(F.size(F.collect_set("id"))),
    ),
    "a pivot": Rewrite(
        pivoted,
        "pivot cannot run",
        "F.sum(F.when(F.col('kind') == 'a', F.col('amount'))).alias('a')",
        unpivoted,
    ),
    "a session window": Rewrite(
        session_windows,
        "a session window cannot run in real time",
        "F.window('time', '5 minutes')",
        lambda s: windowed(s, "5 minutes"),
    ),
    "a window function": Rewrite(
        newest,
        "a window function (over) cannot run in real time",
        "F.max_by(F.struct('*'), 'time')",
        lambda s: s.events().groupBy("key").agg(F.max_by(F.struct("*"), "time")),
    ),
    "a sort": Rewrite(lambda s: s.events().orderBy("id"), "a sort cannot run", "sort where", lambda s: s.events()),
    "a function on groups": Rewrite(
        lambda s: s.events().groupBy("key").applyInPandas(lambda group: group, s.events().schema),
        "applyInPandas cannot run",
        "groupBy with built-in aggregates",
        lambda s: s.events().groupBy("key").count(),
    ),
    "a join without an equal key": Rewrite(
        lambda s: banded(s.events(), ranges(s), key=False),
        "a join without an equal key cannot run",
        "F.hash(events.id) % 1 == F.hash(table.low) % 1",
        lambda s: banded(s.events(), ranges(s), key=True),
    ),
}


def test_spark_refuses_a_pivot_without_values_in_these_words(sources: Sources) -> None:
    with pytest.raises(UserCodeFailed) as refused, user_code("the function"):
        sources.events().groupBy("id").pivot("key").agg(F.sum("amount"))
    assert "F.sum(F.when(" in refused.value.fix


@pytest.mark.parametrize("name", REWRITES)
def test_what_is_refused_is_called_by_its_name_and_its_rewrite_runs(name: str, sources: Sources) -> None:
    rewrite = REWRITES[name]
    (finding,) = errors_of(rewrite.bad(sources))
    assert rewrite.title in finding.title
    assert rewrite.fix in finding.fix
    assert errors_of(rewrite.good(sources)) == []


def errors_of(frame: DataFrame) -> list[Any]:
    return [each for each in tr.check(frame).findings if each.severity is Severity.ERROR]


def test_a_constant_key_keeps_what_a_range_join_gives(spark: SparkSession, sources: Sources) -> None:
    events = spark.createDataFrame([(1,), (8,), (9,), (99,), (None,)], "id long")
    table = ranges(sources).union(spark.createDataFrame([(None, 3, "open")], "low long, high long, band string"))
    rows = {key: sorted(map(str, banded(events, table, key=key).collect())) for key in (False, True)}
    assert rows[True] == rows[False]
    assert len(rows[True]) == 7, "one in low, two in high and both, two without a band"


def joined(s: Sources, *, watermarks: bool, condition: str) -> Any:
    left, right = (
        (frame.withWatermark("time", "1 minute") if watermarks else frame).alias(name)
        for name, frame in (("l", s.events()), ("r", s.events(s.other)))
    )
    return left.join(right, F.expr(condition)).select("l.id")


IN_RANGE = "l.id = r.id and r.time between l.time and l.time + interval 1 minute"


@pytest.mark.parametrize(
    ("build", "unbounded"),
    [
        (lambda s: joined(s, watermarks=False, condition="l.id = r.id"), True),
        (lambda s: joined(s, watermarks=True, condition="l.id = r.id"), True),
        (lambda s: joined(s, watermarks=True, condition=IN_RANGE), False),
        (lambda s: joined(s, watermarks=True, condition="l.id = r.id and l.time = r.time"), False),
        (lambda s: s.events().withWatermark("time", "1 minute").dropDuplicatesWithinWatermark(["id"]), False),
        (lambda s: s.events().withWatermark("time", "1 minute").dropDuplicates(["id"]), True),
    ],
    ids=["join", "join without a range", "join in a range", "join on the time", "within watermark", "dropDuplicates"],
)
def test_state_is_unbounded_where_no_watermark_removes_it(
    build: Callable[[Sources], Any], unbounded: bool, sources: Sources, tmp_path: Path
) -> None:
    assert ("STATE_UNBOUNDED" in codes(Way(build, MICROBATCH), sources, tmp_path)) is unbounded
