"""What Spark's Kafka source offers works where Tailrace controls it: in both modes, for a user's own writer."""

import json
import secrets
import time
from collections import Counter

import pytest
from combined import MODES, combined
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Kafka, wait_until
from copies import Copy, numbers
from pyspark.sql import functions as F

import tailrace as tr
from tailrace import engine
from tailrace.errors import QueryRefused, TailraceError
from tailrace.kafka.records import read_records

pytestmark = pytest.mark.usefixtures("spark")


def test_a_pattern_headers_and_a_start_by_timestamp(copy: Copy, kafka: Kafka, mode: str) -> None:
    family = f"family-{secrets.token_hex(4)}"
    topics = [kafka.topic(f"{family}-{number}") for number in range(2)]
    producer, cut = Producer(kafka.config), int(time.time() * 1000) - 60_000
    for number in range(40):
        producer.produce(
            topics[number % 2],
            json.dumps({"a": number}).encode(),
            partition=number // 2 % 2,
            timestamp=cut + (number - 20) * 100,
            headers=[("number", str(number).encode())],
        )
    assert producer.flush(20) == 0
    rows = copy.read(subscribePattern=f"{family}-.*", startingTimestamp=str(cut), includeHeaders="true")
    number = F.get_json_object(F.col("value").cast("string"), "$.a").cast("long").alias("a")
    header = F.col("headers")[0]["value"].cast("string").alias("header")
    copy.run_once(copy.writer(rows, F.to_json(F.struct(number, header, "topic", "partition", "offset"))), mode)
    written = copy.written()
    assert {row["a"]: row["header"] for row in written} == {number: str(number) for number in range(20, 40)}
    assert len(written) == 20
    assert {(row["topic"], row["partition"], row["offset"]) for row in written} == {
        (topics[number % 2], number // 2 % 2, number // 4) for number in range(20, 40)
    }


def test_the_end_of_a_run_and_metrics_are_the_connectors(copy: Copy, kafka: Kafka, mode: str) -> None:
    topic = kafka.topic("in")
    offsets = json.dumps({topic: {"0": 3, "1": -2}})
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(20)])
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets=offsets))
    with tr.start(writer, mode, checkpoint=copy.folder / "checkpoint") as running:
        wait_until(lambda: len(copy.written()) == 17, 60, "all records from the starting offsets on")
        running.checkpoint()
        wait_until(lambda: sum(each.numInputRows for each in running.query.recentProgress) == 17, 20, "its progress")
        source = next(each for each in running.query.recentProgress if each.numInputRows).sources[0]
        assert source.description == f"KafkaV2[Subscribe[{topic}]]"
        assert json.loads(source.endOffset) == {topic: {"0": 10, "1": 10}}
        assert float(source.metrics["maxOffsetsBehindLatest"]) == 0
    assert numbers(copy.written()) == Counter(set(range(20)) - {0, 2, 4})


def test_admission_control_bounds_each_micro_batch(copy: Copy, kafka: Kafka) -> None:
    """Also over a stop: it finishes the batch that it finds, and starts no other."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(200)])
    rows = copy.read(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20", minPartitions="4")
    writer = copy.writer(rows)
    running = tr.start(writer, "microbatch", checkpoint=copy.folder / "checkpoint")
    wait_until(lambda: len(copy.written()) >= 40, 60, "two batches")
    assert running.stop().repeats == ""
    sizes = [each.numInputRows for each in running.query.recentProgress if each.numInputRows]
    assert set(sizes) == {20}
    assert len(copy.written()) == sum(sizes)
    copy.run_once(writer, "microbatch")
    assert numbers(copy.written()) == Counter(range(200))


def test_a_source_that_is_used_twice_is_one_stream(copy: Copy, kafka: Kafka) -> None:
    """Spark reads equal relations once."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(20)])
    rows = copy.read(subscribe=topic, startingOffsets="earliest")
    writer = copy.writer(rows.union(rows.where("offset >= 0")))
    with tr.start(writer, "microbatch", checkpoint=copy.folder / "checkpoint") as running:
        wait_until(lambda: len(copy.written()) == 40, 60, "each record twice")
        assert {len(each.sources) for each in running.query.recentProgress} == {1}
    assert set(numbers(copy.written()).values()) == {2}


@pytest.mark.parametrize(("lost", "mode"), combined(["fail", "go on"], MODES))  # test_lost_records.py has the others
def test_records_that_kafka_has_deleted(copy: Copy, kafka: Kafka, mode: str, lost: str) -> None:
    topic = kafka.topic("in", 1)
    failing = {"failOnDataLoss": "true" if lost == "fail" else "false"}
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest", **failing))
    kafka.send(topic, [{"a": number} for number in range(10)])
    copy.run_once(writer, mode)
    kafka.send(topic, [{"a": number} for number in range(10, 30)])
    admin = AdminClient(kafka.config)  # held by name: its answers die with it
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 20)]).values()
    deleted.result(20)
    if lost == "fail":
        with pytest.raises(TailraceError):
            copy.run_once(writer, mode)
        assert numbers(copy.written()) == Counter(range(10))
    else:
        copy.run_once(writer, mode)
        assert numbers(copy.written()) == Counter([*range(10), *range(20, 30)])


def test_a_bounded_run_over_a_compacted_topic(copy: Copy, kafka: Kafka, mode: str) -> None:
    """The position passes the offsets whose records are gone."""
    topic = kafka.topic("in", 1)
    kafka.compact(topic)
    producer = Producer(kafka.config)

    def send(number: int, key: str) -> None:
        producer.produce(topic, json.dumps({"a": number}).encode(), key=key)
        assert producer.flush(20) == 0

    for number in range(200):
        send(number, f"key-{number % 4}")
    time.sleep(0.2)  # the segment is older than segment.ms: the next record begins another, and this one is compacted
    send(200, "last")
    wait_until(lambda: len(list(read_records(kafka.config, topic))) == 5, 60, "the topic is compacted")
    summary = copy.run_once(copy.writer(copy.read(subscribe=topic, startingOffsets="earliest")), mode)
    assert summary.repeats == ""
    assert numbers(copy.written()) == Counter([196, 197, 198, 199, 200])
    send(201, "last")
    copy.run_once(copy.writer(copy.read(subscribe=topic, startingOffsets="earliest")), mode)
    assert numbers(copy.written()) == Counter([196, 197, 198, 199, 200, 201])


def test_a_stop_that_takes_too_long_counts_the_records_of_a_writer(copy: Copy, kafka: Kafka, mode: str) -> None:
    began = copy.folder / "began"

    @F.udf("binary")
    def wait(value):  # type: ignore[no-untyped-def]
        began.touch()
        time.sleep(0.05)
        return value

    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(400)])  # 10 s in two tasks
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest"), wait("value"))
    running = tr.start(writer, mode, checkpoint=copy.folder / "checkpoint")
    wait_until(began.exists, 60, "rows are processed")
    if mode == "realtime":
        wait_until(lambda: sum(each.records for each in running.positions()) == 400, 30, "both tasks have read theirs")
    summary = running.stop(0.5)
    assert summary.repeats == "its batch did not end within 0.5 s"
    assert summary.uncommitted_rows == 400


def test_another_source_beside_kafka(copy: Copy, kafka: Kafka) -> None:
    """In real time both would have to end the batch. In micro-batch one of them ends the query between two batches."""
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(20)])
    rows = copy.read(subscribe=topic, startingOffsets="earliest").select("value")
    rates = copy.spark.readStream.format("rate").load().select(F.lit(b'{"a": -1}').alias("value"))
    both = rows.union(rates)
    assert engine.uncontrolled(both, realtime=True) == "it also reads rate, which cannot end a batch on request"
    assert engine.uncontrolled(both, realtime=False) == ""
    assert engine.uncontrolled(rows, realtime=True) == ""
    assert engine.uncontrolled(rates, realtime=False) == "it reads no Kafka topic"
    running = copy.start(copy.writer(both), "microbatch")
    wait_until(lambda: len(copy.written()) > 20, 60, "records of both")
    assert running.stop(60).repeats == ""


def test_an_older_kafka_source_that_the_user_has_chosen(copy: Copy, kafka: Kafka) -> None:
    topic = kafka.topic("in")
    kafka.send_to_every_partition(topic, [{"a": number} for number in range(20)])
    setting = "spark.sql.streaming.disabledV2MicroBatchReaders"
    copy.spark.conf.set(setting, "org.apache.spark.sql.kafka010.KafkaSourceProvider")
    try:
        writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest"))
        (finding,) = tr.check(writer, "microbatch").findings
        assert (finding.code, finding.fix) == ("BATCH_END_UNSUPPORTED", f"unset {setting}")
        running = copy.start(writer, "microbatch")
        wait_until(lambda: len(copy.written()) == 20, 60, "the records")
        assert "did not end" not in running.stop(5).repeats, "it does not wait for a batch that cannot end"
    finally:
        copy.spark.conf.unset(setting)


def test_other_versions_of_spark_and_connector_have_their_own_source(
    copy: Copy, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = copy.spark._jvm.org.apache.spark.sql.kafka010.tailrace.SourceControl  # type: ignore[union-attr]
    assert control.unsupported("4.3.1", "4.2.0") == ""
    assert control.unsupported("4.4.0", "4.3.0") == "Spark 4.4.0 is not one of 4.3.x"
    assert "Kafka connector 4.4.0 is not one of 4.2.x" in control.unsupported("4.3.0", "4.4.0")
    assert "Kafka connector 4.3.0 is not one of 4.2.x" in control.unsupported("4.3.0", "4.3.0")
    monkeypatch.setattr(engine, "uncontrolled", lambda _, **__: "Spark 4.4.0 is not one of 4.3.x")
    writer = copy.writer(copy.read(subscribe=kafka.topic("in"), startingOffsets="earliest"))
    for mode, repeated in (("realtime", "the records since the last checkpoint"), ("microbatch", "the running batch")):
        (finding,) = tr.check(writer, mode).findings
        assert (finding.code, finding.title) == ("BATCH_END_UNSUPPORTED", f"a stop repeats {repeated}")
    with pytest.raises(QueryRefused, match="cannot end in real time") as refused:
        copy.run_once(writer, "realtime")
    assert refused.value.code == "BATCH_END_UNSUPPORTED"
    running = tr.start(writer, "realtime", checkpoint=copy.folder / "checkpoint")
    with pytest.raises(QueryRefused, match="cannot be checkpointed on request"):
        running.checkpoint()
    assert "Spark's own Kafka source" in running.stop().repeats
