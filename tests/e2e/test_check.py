"""``tailrace check`` and ``tr.check`` on the real broker and the real Spark; nothing is left behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from pyspark.sql import functions as F

import tailrace as tr
from tailrace import engine
from tailrace.errors import PartitionsStarved, SlotsMissing
from tailrace.kafka.topics import list_topics

SCHEMA = "id long, key string, amount double"


def pipeline(kafka: Kafka, transform: Any, partitions: int = 2, **more: Any) -> tr.Pipeline:
    source, sink = kafka.topic("checked", partitions), kafka.topic("checked-out", 1)
    return tr.Pipeline("checked", tr.KafkaSource(source, SCHEMA), transform, tr.KafkaSink(sink), **more)


def codes(report: Any) -> set[str]:
    return {finding.code for finding in report.findings}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_runs_is_ok_and_nothing_is_left_behind(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    given = pipeline(kafka, lambda events: events.where("amount > 1"))
    before = set(list_topics(kafka.config))
    report = tr.check(given, bootstrap_servers=kafka.bootstrap_servers)
    assert report.ok, report.as_json()
    assert report.slots is not None
    assert report.slots.stages == (2,)
    assert list(tmp_path.iterdir()) == [], "no file"
    assert set(list_topics(kafka.config)) == before, "no topic"
    assert spark.streams.active == [], "no query"


def test_a_finding_has_the_line_of_the_users_call(spark: Any, kafka: Kafka) -> None:
    def limited(events: Any) -> Any:
        return events.limit(3)  # the line

    report = tr.check(pipeline(kafka, limited), bootstrap_servers=kafka.bootstrap_servers)
    assert not report.ok
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the line" in text)
    assert {finding.where for finding in report.findings if finding.severity == "error"} == {
        f"{__file__}:{line} (limit)"
    }


def test_three_stages_are_counted_in_words_and_in_json(spark: Any, kafka: Kafka) -> None:
    def two_shuffles(events: Any) -> Any:
        return events.repartition(20, "id").groupBy("key").count()

    given = pipeline(kafka, two_shuffles, partitions=8)
    report = tr.check(given, bootstrap_servers=kafka.bootstrap_servers, conf={"spark.sql.shuffle.partitions": "20"})
    told = report.as_json()
    assert told["slots"] == {"stages": [8, 20, 20], "required": 48, "available": engine.capacity(spark).slots}
    assert "SLOTS_MISSING" in codes(report)
    assert any("8 + 20 + 20 = 48" in finding.why for finding in report.findings)
    json.dumps(told)


def test_a_missing_topic_and_a_silent_broker_are_findings(spark: Any, kafka: Kafka) -> None:
    given = tr.Pipeline(
        "checked", tr.KafkaSource("not-there", SCHEMA), lambda events: events, tr.KafkaSink(kafka.topic("out", 1))
    )
    assert "TOPIC_MISSING" in codes(tr.check(given, bootstrap_servers=kafka.bootstrap_servers))
    assert "BROKER_UNREACHABLE" in codes(tr.check(given, bootstrap_servers="127.0.0.1:1"))


def test_a_writer_and_a_frame_can_be_checked(spark: Any, kafka: Kafka) -> None:
    topic = kafka.topic("checked", 2)
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    assert tr.check(frame).ok
    assert "SINK_REFUSED" in codes(tr.check(frame.writeStream.foreachBatch(lambda _frame, _batch: None)))
    twice = F.udf(lambda value: value, "binary")
    assert "PYTHON_FUNCTION" in codes(tr.check(frame.select(twice("value").alias("value"))))


def test_auto_is_real_time_where_it_can_be_and_says_why_not(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    def by_python(events: Any) -> Any:
        return events.withColumn("twice", F.udf(lambda number: number * 2, "double")("amount"))

    for transform, mode in ((lambda events: events, "realtime"), (by_python, "microbatch")):
        with tr.start(
            pipeline(kafka, transform), "auto", bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / mode
        ) as running:
            assert running.mode == mode
            why = {"PYTHON_FUNCTION"} if mode == "microbatch" else set()
            assert {reason.code for reason in running.why_microbatch} == why


def test_more_partitions_than_slots_are_refused_by_name_and_fit_where_there_are_enough(
    spark: Any, kafka: Kafka, tmp_path: Path
) -> None:
    slots = engine.capacity(spark).slots
    given = pipeline(kafka, lambda events: events, partitions=slots + 2)
    report = tr.check(given, bootstrap_servers=kafka.bootstrap_servers)
    (finding,) = [each for each in report.findings if each.code == "SLOTS_MISSING"]
    assert finding.why.count("checked-") == 2, "the two that would never be read"
    assert f"local[{slots + 2}]" in finding.fix
    with pytest.raises(SlotsMissing):
        tr.start(given, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c")


def test_partitions_that_are_added_while_it_runs_are_caught(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    slots = engine.capacity(spark).slots
    given = pipeline(kafka, lambda events: events, partitions=slots)
    running = tr.start(
        given, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", checkpoint_every="1s",
        conf={"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"},
    )  # fmt: skip
    try:
        kafka.add_partitions(given.sources[0].topic_names[0], slots + 2)
        with pytest.raises(PartitionsStarved, match=r"not being read|cannot get a slot"):
            running.wait(timeout_s=60)
    finally:
        running.stop()
