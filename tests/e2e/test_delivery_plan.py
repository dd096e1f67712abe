"""What the check says of a pipeline's delivery, and its fingerprint, with plans of the real Spark in both modes."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType

import tailrace as tr
from tailrace.errors import DeliveryRefused
from tailrace.prepare.options import RunOptions
from tailrace.prepare.prepare import prepare, target_of

SCHEMA = "id long, key string, amount double, tags array<string>"
MODES = ("realtime", "microbatch")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def topics(broker: Any) -> tuple[str, str]:
    kafka = Kafka(broker.bootstrap_servers)
    return kafka.topic("delivered", 2), kafka.topic("delivered-out", 1)


def pipeline(topics: tuple[str, str], transform: Any, **more: Any) -> tr.Pipeline:
    sink = tr.KafkaSink(topics[1], **more.pop("sink", {}))
    return tr.Pipeline("delivered", tr.KafkaSource(topics[0], SCHEMA), transform, sink, **more)


def delivery(kafka: Kafka, given: tr.Pipeline, mode: str = "realtime", **more: Any) -> Any:
    options = RunOptions(mode, bootstrap_servers=kafka.bootstrap_servers, **more)  # type: ignore[arg-type]
    with prepare(target_of(given, options), options, dry_run=True) as prepared:
        return prepared.delivery


@F.udf(DoubleType(), useArrow=False)  # a name needs Spark, which tests start later
def doubled(number):  # type: ignore[no-untyped-def]
    return number * 2


def plain(events: Any) -> Any:
    return events.where("amount > 1").select(
        "id", "key", F.explode("tags").alias("tag"), (F.col("amount") * 2).alias("a")
    )


def by_python(events: Any) -> Any:
    return events.withColumn("amount", doubled("amount")).where("amount > 1").withColumn("at", F.current_timestamp())


def with_harmless_values(events: Any) -> Any:
    return events.select("id", F.rand().alias("r"), F.uuid().alias("u")).withColumn("s", F.col("r") + 1).where("id > 1")


def with_table(events: Any) -> Any:
    table = events.sparkSession.createDataFrame([("a", 1), ("b", 2)], "key string, weight int")
    return events.join(F.broadcast(table), "key", "left")


def with_unique_keys(events: Any) -> Any:
    table = events.sparkSession.range(10).selectExpr("cast(id as string) as key", "id as n").repartition(2)
    return events.join(F.broadcast(table.dropDuplicates(["key"])), "key")


def united(events: Any) -> Any:
    return events.select("id", F.expr("transform(tags, tag -> upper(tag))").alias("tags"))


@pytest.mark.parametrize("transform", [plain, by_python, with_harmless_values, with_table, with_unique_keys, united])
def test_stateless_pipelines_are_effectively_once_with_one_fingerprint_in_both_modes(
    spark: Any, kafka: Kafka, topics: tuple[str, str], transform: Any
) -> None:
    plans = [delivery(kafka, pipeline(topics, transform), mode) for mode in (*MODES, "realtime")]
    assert [(plan.reason, plan.effectively_once, plan.keeps_progress) for plan in plans] == [("", True, True)] * 3
    assert len({plan.fingerprint for plan in plans}) == 1


def changed(events: Any) -> Any:
    return plain(events).where("id > 2")


def test_a_changed_function_or_topic_changes_the_fingerprint(spark: Any, kafka: Kafka, topics: tuple[str, str]) -> None:
    other = (topics[0], kafka.topic("delivered-other", 1))
    given = [pipeline(topics, plain), pipeline(topics, changed), pipeline(other, plain)]
    given += [pipeline(topics, plain, malformed="drop"), pipeline(topics, lambda e: plain(e).where("id > 3"))]
    assert len({delivery(kafka, each).fingerprint for each in given}) == len(given)


def counted(events: Any) -> Any:
    return events.groupBy("key").count()  # the aggregate


def shuffled(events: Any) -> Any:
    return events.repartition(2, "key")


def mapped(events: Any) -> Any:
    return events.mapInPandas(lambda frames: frames, SCHEMA)


def sampled(events: Any) -> Any:
    return events.withColumn("r", F.rand()).select("*", (F.col("r") * 2).alias("s")).where("s > 0.5")


def recent(events: Any) -> Any:
    return events.where("current_timestamp() > timestamp'2020-01-01'")


def exploded_at_random(events: Any) -> Any:
    return events.withColumn("n", F.explode(F.sequence(F.lit(1), (F.rand() * 3).cast("int"))))


def routed(events: Any) -> Any:
    return events.withColumn("target", F.when(F.rand() > 0.5, "a").otherwise("b"))


def joined_with_unordered(events: Any) -> Any:
    table = events.sparkSession.range(10).selectExpr("cast(id % 2 as string) as key", "id as n").repartition(2)
    return events.join(F.broadcast(table), "key")


@F.udf(DoubleType(), useArrow=False)  # a name needs Spark, which tests start later
def guessed(number):  # type: ignore[no-untyped-def]
    return number


def by_guess(events: Any) -> Any:
    return events.where(guessed.asNondeterministic()("amount") > 1)


@pytest.mark.parametrize(
    ("transform", "progress", "words"),
    [
        (counted, False, "an aggregate"),
        (shuffled, False, "repartition"),
        (mapped, False, "mapInPandas"),
        (sampled, True, "rand gives another value each time, and decides whether a row is written"),
        (recent, True, "current_timestamp gives"),
        (exploded_at_random, True, "how many rows"),
        (routed, True, "to which topic"),
        (joined_with_unordered, True, "several rows of a static table"),
        (by_guess, True, "guessed gives"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_prevents_it_is_named(
    spark: Any, kafka: Kafka, topics: tuple[str, str], transform: Any, progress: bool, words: str, mode: str
) -> None:
    sink = {"topic_column": "target"} if transform is routed else {}
    plan = delivery(kafka, pipeline(topics, transform, sink=sink), mode)
    assert not plan.effectively_once
    assert words in plan.reason
    assert plan.keeps_progress is progress
    assert plan.where.startswith(__file__), plan
    if transform is counted:
        line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the aggregate" in text)
        assert plan.where.startswith(f"{__file__}:{line} ")


def test_asked_for_it_is_refused_with_the_reason_and_the_line(
    spark: Any, kafka: Kafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    for mode in MODES:
        with pytest.raises(DeliveryRefused, match="cannot deliver effectively-once") as refused:
            tr.start(
                pipeline(topics, counted), mode, delivery="effectively-once",
                bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / mode,
            )  # fmt: skip
        assert refused.value.code == "DELIVERY_REFUSED"
        assert __file__ in str(refused.value)


def test_a_compacted_topic_and_missing_lineage_prevent_it(spark: Any, kafka: Kafka, topics: tuple[str, str]) -> None:
    compacted = (topics[0], kafka.topic("delivered-compacted", 1))
    kafka.compact(compacted[1])
    plan = delivery(kafka, pipeline(compacted, plain))
    assert (plan.keeps_progress, plan.effectively_once) == (True, False)
    assert f"{compacted[1]} is compacted" in plan.reason
    assert "lineage=False" in delivery(kafka, pipeline(topics, plain, lineage=False)).reason


def test_a_writer_is_at_least_once(spark: Any, kafka: Kafka, topics: tuple[str, str]) -> None:
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = read.option("subscribe", topics[0]).load().writeStream.format("kafka").option("topic", topics[1])
    report = tr.check(writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers))
    assert report.delivery is not None
    assert "DataStreamWriter" in report.delivery.in_words


PROGRAM = """
import sys
import pyspark.sql.functions as F
import tailrace as tr
from tailrace.prepare.options import RunOptions
from tailrace.prepare.prepare import prepare, target_of
from tailrace.prepare.loader import load_pipeline

options = RunOptions("realtime", bootstrap_servers=sys.argv[1])
pipeline = load_pipeline(sys.argv[2])
with prepare(target_of(pipeline, options), options, dry_run=True) as prepared:
    print("fingerprint", prepared.delivery.fingerprint, prepared.delivery.reason)
"""
FILE = """
import tailrace as tr
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType
from rules import is_risky

KEYS = {{"a", "b", "c"}}

def rated(events):
    @F.udf("boolean", useArrow=False)
    def risky(key, amount):
        return key in KEYS and is_risky(amount)
    table = events.sparkSession.createDataFrame([("a", 1), ("b", 2)], "key string, weight int")
    rows = events.where(risky("key", "amount")).join(F.broadcast(table), "key", "left")
    return rows.withColumn("r", F.rand()).withColumn("tags", F.transform("tags", lambda tag: F.upper(tag)))

pipeline = tr.Pipeline("other", tr.KafkaSource("{source}", "{schema}"), rated, tr.KafkaSink("{sink}"))
"""


def test_two_processes_agree_and_a_changed_helper_is_noticed(
    kafka: Kafka, topics: tuple[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rated.py").write_text(FILE.format(source=topics[0], sink=topics[1], schema=SCHEMA))
    (tmp_path / "program.py").write_text(PROGRAM)
    seen = []
    for seed, limit in (("1", 5), ("2", 5), ("1", 6)):
        (tmp_path / "rules.py").write_text(f"def is_risky(amount):\n    return amount > {limit}\n")
        done = subprocess.run(
            [sys.executable, "program.py", kafka.bootstrap_servers, "rated.py"],
            cwd=tmp_path, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, timeout=180,
            check=True,
        )  # fmt: skip
        seen.append(next(line for line in done.stdout.splitlines() if line.startswith("fingerprint")).split(" ", 2))
    assert [each[2] for each in seen] == ["", "", ""]
    assert seen[0][1] == seen[1][1] != seen[2][1]


def test_it_takes_milliseconds(spark: Any, kafka: Kafka, topics: tuple[str, str]) -> None:
    """A report, not a limit: how long it takes depends on the machine."""
    from tailrace.prepare import pipeline_target

    took: list[float] = []
    target = pipeline_target.PipelineTarget.delivery

    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        result = target(*args)
        took.append(1000 * (time.perf_counter() - began))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_target.PipelineTarget, "delivery", timed)
        for _ in range(5):
            delivery(kafka, pipeline(topics, by_python))
    print("delivery took", [f"{each:.1f} ms" for each in took])
    assert min(took) < 1000
