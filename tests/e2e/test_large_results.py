"""Results that are too large for Kafka: the query ends with the record, the size and the setting."""

import re
import secrets
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka

import tailrace as tr
from tailrace.errors import RecordTooLarge
from tailrace.kafka.topics import create_topic
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
    kafka.send(source, [LARGE, SMALL])
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
