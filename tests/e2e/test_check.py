"""``tailrace check`` and ``tr.check`` on the real broker and the real Spark; nothing is left behind."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from conftest import Kafka, wait_until
from pyspark.sql import functions as F

import tailrace as tr
from tailrace import engine
from tailrace.errors import PartitionsStarved, SlotsMissing, TailraceError
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
    data = report.as_json()
    assert data["slots"] == {"stages": [8, 20, 20], "required": 48, "available": engine.capacity(spark).slots}
    assert "SLOTS_MISSING" in codes(report)
    assert any("8 + 20 + 20 = 48" in finding.why for finding in report.findings)
    json.dumps(data)


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
    same = F.udf(lambda value: value, "binary")
    report = tr.check(frame.select(same("value").alias("value")))
    assert report.ok, report.as_json()
    assert "PYTHON_FUNCTION" in codes(report)
    assert "Python" not in {link.name for link in report.latency}, "no row waits for a batch to fill"


def by_four_functions(events: Any) -> Any:
    @F.udf("double", useArrow=False)
    def doubled(number):
        return number * 2

    @F.pandas_udf("double")
    def halved(numbers: pd.Series) -> pd.Series:
        return numbers / 2

    @F.pandas_udf("double")
    def stamped(numbers: pd.Series, _: pd.Series) -> pd.Series:
        return numbers

    def scored(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from batches

    events = events.withColumn("amount", doubled("amount"))  # doubled here
    events = events.withColumn("amount", halved("amount"))  # halved here
    events = events.withColumn("amount", stamped("amount", F.current_timestamp()))  # stamped here
    return events.mapInPandas(scored, SCHEMA)  # scored here


def python_findings(kafka: Kafka, transform: Any) -> dict[str, Any]:
    """What is said about each function, by its name."""
    report = tr.check(pipeline(kafka, transform), bootstrap_servers=kafka.bootstrap_servers)
    assert report.ok, report.as_json()
    return {each.title.split()[2]: each for each in report.findings if each.code == "PYTHON_FUNCTION"}


def test_a_python_function_is_reported_with_its_name_and_its_path(spark: Any, kafka: Kafka) -> None:
    findings = python_findings(kafka, by_four_functions)
    assert {each.severity for each in findings.values()} == {"advice"}
    paths = {
        "doubled": "pickled rows",
        "halved": "plain columns",
        "stamped": "Arrow batches",
        "scored": "plain columns",
    }
    assert findings.keys() == paths.keys()
    for name, path in paths.items():
        assert path in findings[name].why


def test_a_python_function_is_reported_with_the_users_line(spark: Any, kafka: Kafka) -> None:
    lines = Path(__file__).read_text().splitlines()
    for name, finding in python_findings(kafka, by_four_functions).items():
        line = next(number for number, text in enumerate(lines, 1) if text.endswith(f"# {name} here"))
        assert finding.where.startswith(f"{__file__}:{line} ("), finding.where


def test_what_stays_refused_of_python_has_a_way_out(spark: Any, kafka: Kafka) -> None:
    def scored(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from batches

    def behind_a_barrier(events: Any) -> Any:
        return events.mapInPandas(scored, SCHEMA, barrier=True)

    report = tr.check(pipeline(kafka, behind_a_barrier), bootstrap_servers=kafka.bootstrap_servers)
    (finding,) = [each for each in report.findings if each.severity == "error"]
    assert (finding.code, finding.title) == (
        "OPERATOR_REFUSED",
        "mapInPandas with a barrier or a profile cannot run in real time",
    )
    assert finding.where.endswith("(mapInPandas)")
    assert "without barrier=" in finding.fix


def test_auto_is_real_time_where_it_can_be_and_says_why_not(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    def by_python(events: Any) -> Any:
        return events.withColumn("twice", F.udf(lambda number: number * 2, "double")("amount"))

    def in_one_task(events: Any) -> Any:
        return events.coalesce(1)

    expected = ((lambda events: events, "realtime"), (by_python, "realtime"), (in_one_task, "microbatch"))
    for number, (transform, mode) in enumerate(expected):
        given, folder = pipeline(kafka, transform), tmp_path / str(number)
        with tr.start(given, "auto", bootstrap_servers=kafka.bootstrap_servers, checkpoint=folder) as running:
            assert running.mode == mode
            why = {"OPERATOR_REFUSED"} if mode == "microbatch" else set()
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


PROGRAM = """
import tailrace as tr

source = tr.KafkaSource("{source}", "id long, partition int")
pipeline = tr.Pipeline("four", source, lambda events: events, tr.KafkaSink("{sink}"))
"""


def command(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def test_four_partitions_on_two_slots_are_refused_by_name_and_on_four_all_are_read(
    kafka: Kafka, tmp_path: Path
) -> None:
    source, sink = kafka.topic("four", 4), kafka.topic("four-out", 1)
    (tmp_path / "four.py").write_text(PROGRAM.format(source=source, sink=sink))
    kafka.send_to_every_partition(source, [{"id": number, "partition": number % 4} for number in range(40)])
    servers = ("--bootstrap-servers", kafka.bootstrap_servers)

    refused = command("check", "four.py", "--master", "local[2]", "--json", *servers, folder=tmp_path)
    assert refused.returncode == 1, refused.stderr
    data = json.loads(refused.stdout)
    assert (data["ok"], data["slots"]) == (False, {"stages": [4], "required": 4, "available": 2})
    (finding,) = [each for each in data["findings"] if each["code"] == "SLOTS_MISSING"]
    assert finding["why"].count(f"{source}-") == 2, "the two that would never be read"
    assert "--master 'local[4]'" in finding["fix"]
    assert {each.name for each in tmp_path.iterdir()} - {"__pycache__"} == {"four.py"}, "only Python itself has written"

    run = command("run", "four.py", "--master", "local[4]", "--once", *servers, folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert {value["partition"] for _, value in kafka.receive_count(sink, 40)} == {0, 1, 2, 3}


def test_no_secret_is_printed(spark: Any, kafka: Kafka) -> None:
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2";'
    secret = {
        "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": login,
    }  # fmt: skip
    source, sink = kafka.topic("secret", 1), kafka.topic("secret-out", 1)
    given = tr.Pipeline(
        "secret",
        tr.KafkaSource(source, SCHEMA, options=secret),
        lambda events: events.limit(1),
        tr.KafkaSink(sink, options=secret),
    )
    report = tr.check(given, bootstrap_servers=kafka.bootstrap_servers)
    assert not report.ok
    assert "hunter2" not in json.dumps(report.as_json())
    with pytest.raises(TailraceError) as refused:
        tr.start(given, bootstrap_servers=kafka.bootstrap_servers)
    assert "hunter2" not in str(refused.value) + refused.value.detail


@pytest.mark.parametrize("starved", ["stop", "warn"])
def test_partitions_that_no_task_reads_are_caught(
    spark: Any, kafka: Kafka, tmp_path: Path, starved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own source gives each partition a task, also where there is no slot for it."""
    monkeypatch.setattr(engine, "uncontrolled", lambda _, **__: "stock Spark, for this test")
    slots = engine.capacity(spark).slots
    given = pipeline(kafka, lambda events: events, partitions=slots)
    topic = given.sources[0].topic_names[0]
    running = tr.start(
        given, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", checkpoint_every="1s",
        conf={"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}, starved=starved,
    )  # fmt: skip
    try:
        kafka.add_partitions(topic, slots + 2)
        if starved == "stop":
            with pytest.raises(PartitionsStarved) as refused:
                running.wait(timeout_s=60)
            assert "not being read" in refused.value.what
            assert refused.value.what.count(f"{topic}-") == 2, "it names them"
        else:
            wait_until(lambda: bool(running.starved), 60, "partitions are missed")
            assert running.starved.count(f"{topic}-") == 2
            assert running.is_active
    finally:
        running.stop()


def test_a_partition_that_ends_with_a_transaction_is_not_taken_for_unread(
    spark: Any, kafka: Kafka, tmp_path: Path
) -> None:
    given = pipeline(kafka, lambda events: events, partitions=1)
    topic = given.sources[0].topic_names[0]
    running = tr.start(
        given, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", checkpoint_every="1s",
        conf={"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"},
    )  # fmt: skip
    try:
        producer = Producer({**kafka.config, "transactional.id": "check"})
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, b'{"id": 1, "key": "a", "amount": 1.0}')
        producer.commit_transaction(20)
        kafka.receive_count(given.sink.topic or "", 1)
        assert not running.wait(timeout_s=9), "it goes on"
        assert running.starved == ""
    finally:
        running.stop()


def test_a_check_leaves_a_spark_that_the_next_start_may_make_larger(kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic("grown", 3), kafka.topic("grown-out", 1)
    program = """
import json, sys
import tailrace as tr

def counted(events):
    return events.repartition(5, "id").groupBy("id").count()

pipeline = tr.Pipeline("grown", tr.KafkaSource({source!r}, "id long"), counted, tr.KafkaSink({sink!r}))
servers = {servers!r}
first = tr.check(pipeline, bootstrap_servers=servers)
with tr.start(pipeline, bootstrap_servers=servers, checkpoint="c") as running:
    print(json.dumps([first.ok, running.slots.stages, running.mode]))
"""
    (tmp_path / "grown.py").write_text(program.format(source=source, sink=sink, servers=kafka.bootstrap_servers))
    ended = subprocess.run(
        [sys.executable, "grown.py"], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [True, [3, 5, 3], "realtime"]


def test_every_missing_topic_is_reported(spark: Any, kafka: Kafka) -> None:
    def counted(events: Any) -> Any:
        return events.groupBy("key").count()

    given = tr.Pipeline("checked", tr.KafkaSource("not-there", SCHEMA), counted, tr.KafkaSink("nor-there"))
    report = tr.check(given, bootstrap_servers=kafka.bootstrap_servers)
    assert sorted(finding.code for finding in report.findings if finding.severity == "error") == [
        "TOPIC_MISSING",
        "TOPIC_MISSING",
    ]


def test_a_writer_that_kafka_does_not_take_is_found(spark: Any, kafka: Kafka) -> None:
    source = kafka.topic("checked", 1)
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    rows = read.option("subscribe", source).load()
    for mode in ("realtime", "microbatch"):
        no_value = rows.select("key").writeStream.format("kafka").queryName("no-value")
        asked = no_value.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", source)
        report = tr.check(asked.outputMode("update"), mode)
        assert [finding.code for finding in report.findings if finding.severity == "error"] == ["QUERY_REFUSED"]
        assert "value" in report.findings[0].title


def test_a_query_goes_on_from_its_checkpoint_whatever_its_starting_offsets_say(
    spark: Any, kafka: Kafka, tmp_path: Path, mode: str
) -> None:
    source, sink = kafka.topic("restart", 1), kafka.topic("restart-out", 1)
    starting = json.dumps({source: {"0": 0}})

    def writer() -> Any:
        read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        rows = read.option("subscribe", source).option("startingOffsets", starting).load().select("value")
        kafka_writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        return kafka_writer.option("topic", sink).queryName("restart").outputMode("update")

    conf = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
    kafka.send(source, [{"id": 1}])
    with tr.start(writer(), mode, checkpoint=tmp_path / "c", checkpoint_every="1s", conf=conf) as running:
        kafka.receive_count(sink, 1)
        wait_until(lambda: running.summary().input_rows > 0, 30, "a checkpoint")
    kafka.add_partitions(source, 2)
    report = tr.check(writer(), mode, checkpoint=tmp_path / "c", checkpoint_every="1s", conf=conf)
    assert report.ok, report.as_json()
