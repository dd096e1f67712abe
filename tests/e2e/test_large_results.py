"""Results that Kafka refuses: in real time they become dead letters, otherwise the query ends with the reason."""

import re
import secrets
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import RecordTooLarge
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import create_topic
from tailrace.running.summary import RunSummary
from tailrace.testing import run

LIMIT = 100_000
SMALL, LARGE = b"x", secrets.token_bytes(2 * LIMIT)
"""The large one is as large when it is compressed."""


def copy(source: str, sink: str, options: dict[str, str]) -> tr.Pipeline:
    return tr.Pipeline(
        "large",
        tr.KafkaSource(source, format="bytes", starting="earliest"),
        lambda records: records,
        tr.KafkaSink(sink, value="value", options=options),
        malformed="drop",
    )


def failure(
    kafka: Kafka, folder: Path, mode: str, *, topic: dict[str, str], producer: dict[str, str]
) -> RecordTooLarge:
    """Let a pipeline copy a small record and a large one, and return how it ended."""
    source, sink = kafka.topic("in", partitions=1), f"out-{secrets.token_hex(4)}"
    create_topic(kafka.config, sink, 1, topic)
    kafka.created.append(sink)
    kafka.send(source, [SMALL, LARGE])
    pipeline = copy(source, sink, producer)
    with pytest.raises(RecordTooLarge) as failed:  # from the start itself, if the record is read before it returns
        tr.start(pipeline, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=folder).wait(60)
    return failed.value


def test_a_result_larger_than_the_producer_sends(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    failed = failure(kafka, tmp_path, mode, topic={}, producer={"kafka.max.request.size": str(LIMIT)})
    source, sink = kafka.created
    assert failed.what == f"query 'large': the result of record {source}-0@1 is too large for topic {sink!r}"
    assert re.fullmatch(r"it has 200,\d{3} bytes, and the producer's max.request.size is 100,000", failed.why)
    assert "'kafka.max.request.size': '200" in failed.fix


def test_a_result_larger_than_the_topic_takes(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    failed = failure(kafka, tmp_path, mode, topic={"max.message.bytes": str(LIMIT)}, producer={})
    source, sink = kafka.created
    assert failed.what == f"query 'large': the result of record {source}-0@1 is too large for topic {sink!r}"
    assert re.fullmatch(r"it has 200,\d{3} bytes, and the topic's max.message.bytes is 100,000", failed.why)
    assert f"--entity-name {sink} --add-config max.message.bytes=200" in failed.fix


def test_a_compressed_result_that_only_the_broker_can_measure(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    gzip = {"kafka.compression.type": "gzip"}
    failed = failure(kafka, tmp_path, "microbatch", topic={"max.message.bytes": str(LIMIT)}, producer=gzip)
    assert failed.what == f"query 'large': a result is too large for topic {kafka.created[1]!r}"
    assert "max.message.bytes" in failed.why
    assert f"--entity-name {kafka.created[1]} --add-config max.message.bytes=" in failed.fix


@pytest.mark.parametrize(
    ("mode", "topic", "producer", "why", "fix"),
    [
        (
            "realtime",
            {},
            {"kafka.max.request.size": str(LIMIT)},
            r"it has 200,\d{3} bytes, and the producer's max\.request\.size is 100,000",
            r"set the sink's option kafka\.max\.request\.size to 200\d{3} ",
        ),
        (
            "microbatch",
            {"max.message.bytes": str(LIMIT)},
            {},
            r".* exceeds the topic's max\.message\.bytes",
            r"max\.message",
        ),
    ],
    ids=["producer", "broker"],
)
def test_a_result_of_a_users_own_writer_is_reported_with_what_kafka_says(
    spark: Any,
    kafka: Kafka,
    tmp_path: Path,
    mode: str,
    topic: dict[str, str],
    producer: dict[str, str],
    why: str,
    fix: str,
) -> None:
    """Its rows are not measured before, so neither names the record, and the broker does not say the size.

    In real time Spark looks for a refusal only when it writes the next row, or saves its progress.
    """
    source, sink = kafka.topic("in", partitions=1), f"out-{secrets.token_hex(4)}"
    create_topic(kafka.config, sink, 1, topic)
    kafka.created.append(sink)
    # Not in micro-batch: if both come in one batch, Kafka's producer may split it forever.
    kafka.send(source, [LARGE, SMALL] if mode == "realtime" else [LARGE])
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    records = spark.readStream.format("kafka").options(**servers, subscribe=source, startingOffsets="earliest").load()
    writer = records.select("value").writeStream.format("kafka").options(**servers, **producer, topic=sink)
    with pytest.raises(RecordTooLarge) as failed:
        tr.start(writer.queryName("own"), mode, checkpoint=tmp_path).wait(60)
    assert failed.value.what == f"query 'own': a result is too large for topic {sink!r}"
    assert re.fullmatch(why, failed.value.why)
    assert re.search(fix, failed.value.fix)


def test_the_largest_result_that_the_producer_sends_is_written(spark: Any) -> None:
    names = [f"{each}-{secrets.token_hex(4)}" for each in ("in", "out")]
    pipeline = copy(names[0], names[1], {"kafka.max.request.size": str(LIMIT)})
    with pytest.raises(RecordTooLarge) as failed:
        run(pipeline, [LARGE], "batch")
    size = int(re.findall(r"[\d,]+(?= bytes)", failed.value.why)[0].replace(",", ""))
    fitting = LARGE[: LIMIT - (size - len(LARGE))]
    names = [f"{each}-{secrets.token_hex(4)}" for each in ("in", "out")]
    pipeline = copy(names[0], names[1], {"kafka.max.request.size": str(LIMIT)})
    (written,) = run(pipeline, [fitting], "batch").records
    assert written.value == fitting
    with pytest.raises(RecordTooLarge):
        run(pipeline, [fitting + b"x"], "batch")


class Case:
    """A pipeline with dead letters, in real time."""

    def __init__(self, kafka: Kafka, folder: Path, sink: tr.KafkaSink, **more: Any) -> None:
        self.kafka, self.folder = kafka, folder
        self.source = kafka.topic("in", partitions=1)
        self.dead = f"dead-{secrets.token_hex(4)}"
        source = tr.KafkaSource(self.source, format="bytes", starting="earliest", metadata="record")
        self.pipeline = tr.Pipeline("refused", source, more.pop("transform"), sink, dead_letters=self.dead, **more)

    def run(self) -> RunSummary:
        servers = self.kafka.bootstrap_servers
        return tr.run(self.pipeline, "realtime", bootstrap_servers=servers, checkpoint=self.folder, once=True)

    def letters(self) -> list[tuple[bytes | None, bytes | None, dict[str, str]]]:
        """Key, value and headers of each dead letter."""
        return [
            (letter.key, letter.value, {name: (value or b"").decode() for name, value in letter.headers})
            for letter in read_records(self.kafka.config, self.dead)
        ]


def values(records: DataFrame) -> DataFrame:
    return records.select("value")


@pytest.mark.parametrize(
    ("topic", "producer"),
    [
        ({}, {"kafka.max.request.size": str(LIMIT)}),
        ({"max.message.bytes": str(LIMIT)}, {}),
        ({"max.message.bytes": str(LIMIT)}, {"kafka.compression.type": "gzip"}),
    ],
    ids=["producer", "topic", "only the broker can measure"],
)
def test_a_result_that_is_too_large_becomes_a_dead_letter_in_real_time(
    spark: Any, kafka: Kafka, tmp_path: Path, topic: dict[str, str], producer: dict[str, str]
) -> None:
    sink = f"out-{secrets.token_hex(4)}"
    create_topic(kafka.config, sink, 1, topic)
    kafka.created.append(sink)
    case = Case(kafka, tmp_path, tr.KafkaSink(sink, value="value", options=producer), transform=values)
    kafka.send(case.source, [b"a", LARGE, b"b", LARGE, b"c"])
    summary = case.run()
    assert [record.value for record in read_records(kafka.config, sink)] == [b"a", b"b", b"c"]
    assert (summary.refused, summary.malformed, summary.repeats) == ({"too_large": 2}, {}, "")
    letters = case.letters()
    assert [letter[2]["tailrace.offset"] for letter in letters] == ["1", "3"]
    for _, value, headers in letters:
        assert (headers["tailrace.topic"], headers["tailrace.partition"]) == (case.source, "0")
        assert (headers["tailrace.reason"], headers["tailrace.pipeline"]) == ("too_large", "refused")
        assert headers["tailrace.attempt"] == "1"
        assert value
        assert LARGE.startswith(value)
        if "kafka.max.request.size" in producer:
            assert LIMIT - 5000 < len(value) < LIMIT
            assert f"cut from {len(LARGE)} to {len(value)} bytes" in headers["tailrace.error"]
        else:
            assert value == LARGE
    assert case.run().input_rows == 0, "nothing is repeated"


def test_an_invalid_record_does_not_take_the_others_of_its_batch_with_it(
    spark: Any, kafka: Kafka, tmp_path: Path
) -> None:
    """A compacted topic takes no record without a key, and the broker refuses the whole batch."""
    sink = f"out-{secrets.token_hex(4)}"
    create_topic(kafka.config, sink, 1, {"cleanup.policy": "compact"})
    kafka.created.append(sink)

    def keyed(records: DataFrame) -> DataFrame:
        number = F.col("value").cast("string").cast("int")
        return records.select("value", F.when(number % 10 != 0, number.cast("string")).alias("key"))

    batches = {"kafka.linger.ms": "200"}
    case = Case(kafka, tmp_path, tr.KafkaSink(sink, key="key", value="value", options=batches), transform=keyed)
    kafka.send(case.source, [str(n).encode() for n in range(100)])
    summary = case.run()
    assert summary.refused == {"invalid_record": 10}
    written = [int(record.value or b"-1") for record in read_records(kafka.config, sink)]
    assert sorted(written) == [n for n in range(100) if n % 10], "each once"
    letters = case.letters()
    assert sorted(int(value or b"-1") for _, value, _ in letters) == list(range(0, 100, 10))
    assert {headers["tailrace.reason"] for _, _, headers in letters} == {"invalid_record"}


def test_a_routed_topic_with_an_invalid_name(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    good = kafka.topic("out", partitions=1)

    def routed(records: DataFrame) -> DataFrame:
        value = F.col("value").cast("string")
        return records.select("value", F.when(value == "bad", "no/topic").otherwise(good).alias("to"))

    case = Case(kafka, tmp_path, tr.KafkaSink(topic_column="to", value="value"), transform=routed)
    kafka.send(case.source, [b"a", b"bad", b"b"])
    assert case.run().refused == {"invalid_topic": 1}
    assert [record.value for record in read_records(kafka.config, good)] == [b"a", b"b"]
    ((_, value, headers),) = case.letters()
    assert value == b"bad"
    assert "no/topic" in headers["tailrace.error"]


def test_results_without_lineage(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    sink = kafka.topic("out", partitions=1)
    options = {"kafka.max.request.size": str(LIMIT)}
    case = Case(kafka, tmp_path, tr.KafkaSink(sink, value="value", options=options), transform=values, lineage=False)
    kafka.send(case.source, [b"a", LARGE])
    assert case.run().refused == {"too_large": 1}
    ((_, _, headers),) = case.letters()
    assert "tailrace.topic" not in headers
    assert headers["tailrace.error"].startswith(f"a result for topic {sink} has 200")


def test_a_refused_result_becomes_a_dead_letter_while_the_query_runs(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    sink = kafka.topic("out", partitions=1)
    options = {"kafka.max.request.size": str(LIMIT)}
    case = Case(kafka, tmp_path, tr.KafkaSink(sink, value="value", options=options), transform=values)
    kafka.send(case.source, [b"a", LARGE])
    running = tr.start(
        case.pipeline, "realtime", bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path, stop_timeout="30s"
    )
    try:
        wait_until(lambda: len(case.letters()) == 1, 30, "the dead letter is written while the query runs")
    finally:
        summary = running.stop()
    assert summary.refused == {"too_large": 1}
    assert summary.repeats == ""
