"""The same pipeline in both modes: what goes in comes out, whichever way it runs."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

import tailrace as tr

SCHEMA = "id long, card string, amount double"


def risky(payments: DataFrame) -> DataFrame:
    return payments.where("amount > 50").withColumn("double_amount", F.col("amount") * 2)


def per_card(payments: DataFrame) -> DataFrame:
    return payments.groupBy("card").agg(F.count("*").alias("payments"), F.sum("amount").alias("total"))


def payments(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "card": f"c{n % 7}", "amount": float(n % 100)} for n in range(first, first + count)]


def pipeline(kafka: Kafka, transform: Any, **source: Any) -> tr.Pipeline:
    source_options = {"schema": SCHEMA, "starting": "earliest"} | source
    return tr.Pipeline(
        name="cards",
        source=tr.KafkaSource(kafka.topic("payments"), **source_options),
        transform=transform,
        sink=tr.KafkaSink(kafka.topic("decisions"), key="card"),
    )


def start(kafka: Kafka, what: Any, mode: str, checkpoint: Path) -> Any:
    return tr.start(
        what,
        mode,
        bootstrap_servers=kafka.bootstrap_servers if isinstance(what, tr.Pipeline) else None,
        checkpoint=checkpoint,
        checkpoint_every="1s",
        conf={"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"},
    )


def batch_result(spark: Any, transform: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row.asDict() for row in transform(spark.createDataFrame(records, SCHEMA)).collect()]


def test_stateless_results_equal_those_of_a_batch(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    sent = payments(0, 300)
    expected = Counter(tuple(sorted(row.items())) for row in batch_result(spark, risky, sent))
    with start(kafka, here, mode, tmp_path / "c"):
        kafka.send(here.sources[0].topic_names[0], sent)
        received = kafka.receive_count(here.sink.topic, expected.total())
    assert Counter(tuple(sorted(value.items())) for _, value in received) == expected
    assert all(key == value["card"] for key, value in received)


def test_stateful_last_values_equal_those_of_a_batch(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, per_card)
    sent = payments(0, 200)
    expected = {row["card"]: row for row in batch_result(spark, per_card, sent)}

    def complete(seen: list[Any]) -> bool:
        return dict(seen) == expected

    with start(kafka, here, mode, tmp_path / "c") as running:
        kafka.send(here.sources[0].topic_names[0], sent)
        kafka.receive(here.sink.topic, complete)
    # Two source partitions, and as many after the one shuffle.
    assert running.slots.stages == (2, 2)


def test_several_topics_and_a_struct_schema(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    schema = StructType(
        [StructField("id", LongType()), StructField("card", StringType()), StructField("amount", DoubleType())]
    )
    here = pipeline(kafka, risky, schema=schema)
    topics = [*here.sources[0].topic_names, kafka.topic("more", partitions=1)]
    here = replace(here, source=replace(here.source, topics=topics))
    with start(kafka, here, mode, tmp_path / "c"):
        for number, topic in enumerate(topics):
            kafka.send(topic, [{"id": number, "card": "c", "amount": 99.0}])
        received = kafka.receive_count(here.sink.topic, 2)
    assert sorted(value["id"] for _, value in received) == [0, 1]


def test_latest_and_given_offsets(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    topic = kafka.topic("ordered", partitions=1)
    kafka.send(topic, [{"id": n, "card": "c", "amount": 99.0} for n in range(5)])
    from_third = replace(here, source=replace(here.source, topics=topic, starting={topic: {"0": 3}}))
    with start(kafka, from_third, mode, tmp_path / "offsets"):
        received = kafka.receive_count(here.sink.topic, 2)
    assert [value["id"] for _, value in received] == [3, 4]

    latest = replace(
        from_third,
        name="latest",
        source=replace(from_third.source, starting="latest"),
        sink=replace(here.sink, topic=kafka.topic("out")),
    )
    with start(kafka, latest, mode, tmp_path / "latest") as running:
        _send_until_seen(kafka, topic, latest.sink.topic, running)
        received = kafka.receive_count(latest.sink.topic, 1)
    assert {value["id"] for _, value in received} == {100}


def _send_until_seen(kafka: Kafka, source: str, sink: str, running: Any) -> None:
    """Send the same record until one comes out: 'latest' is wherever the topic ends when the query looks."""
    for _ in range(40):
        running.wait(timeout_s=0.5)
        kafka.send(source, [{"id": 100, "card": "c", "amount": 99.0}])
        try:
            kafka.receive_count(sink, 1, timeout_s=0.5)
        except AssertionError:
            continue
        return
    pytest.fail("nothing came out")


@pytest.mark.parametrize("transform", [risky, per_card], ids=["stateless", "stateful"])
def test_a_checkpoint_goes_from_mode_to_mode_without_loss(
    spark: Any, kafka: Kafka, transform: Any, tmp_path: Path
) -> None:
    here = pipeline(kafka, transform)
    sent: list[dict[str, Any]] = []
    for round_number, each in enumerate(["microbatch", "realtime", "microbatch"]):
        more = payments(round_number * 100, 100)
        sent += more
        # Before the start: a batch job beside a real-time query takes task slots from it, and at its next checkpoint
        # Spark ends a query that does not find all of them free.
        expected = batch_result(spark, transform, sent)
        with start(kafka, here, each, tmp_path / "c"):
            kafka.send(here.sources[0].topic_names[0], more)
            if transform is risky:
                kafka.receive(here.sink.topic, lambda seen, want=expected: len(_distinct(seen)) == len(want))
            else:
                last = {row["card"]: row for row in expected}
                kafka.receive(here.sink.topic, lambda seen, want=last: dict(seen) == want)


@pytest.mark.parametrize(("mode", "transform"), [("microbatch", risky), ("realtime", per_card)])
def test_a_run_that_ended_before_its_first_checkpoint_is_no_obstacle(
    spark: Any, kafka: Kafka, mode: str, transform: Any, tmp_path: Path
) -> None:
    """In real time no batch is in the logs yet; in micro-batch its commit was being written when the run ended."""
    other = "microbatch" if mode == "realtime" else "realtime"
    here = pipeline(kafka, transform)
    sent = payments(0, 50)
    expected = batch_result(spark, transform, sent)
    kafka.send(here.sources[0].topic_names[0], sent)
    rows = {tuple(sorted(row.items())) for row in expected}
    with tr.start(here, mode, checkpoint=tmp_path / "c", bootstrap_servers=kafka.bootstrap_servers):
        kafka.receive(here.sink.topic, lambda seen: rows <= _values(seen))
    commits = tmp_path / "c" / "commits"
    for commit in commits.glob("0"):
        commit.rename(commits / ".0.4f6f.TID7.tmp")
    if transform is per_card:
        assert list((tmp_path / "c" / "state").iterdir())
    afresh = replace(here, sink=replace(here.sink, topic=kafka.topic("afresh")))
    with tr.start(afresh, other, checkpoint=tmp_path / "c", bootstrap_servers=kafka.bootstrap_servers):
        kafka.receive(afresh.sink.topic, lambda seen: rows <= _values(seen))


def _values(seen: list[Any]) -> set[tuple[tuple[str, Any], ...]]:
    return {tuple(sorted(value.items())) for _, value in seen}


def _distinct(seen: list[Any]) -> set[int]:
    """What arrived at least once."""
    return {value["id"] for _, value in seen}


def test_any_stream_writer_is_started_on_a_session_of_its_own(
    spark: Any, kafka: Kafka, mode: str, tmp_path: Path
) -> None:
    source, sink = kafka.topic("in"), kafka.topic("out")
    before = dict(spark.conf.getAll)
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = (
        frame.selectExpr("cast(value as string) as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", sink)
        .queryName("plain")
    )
    with start(kafka, writer, mode, tmp_path / "c") as running:
        assert running.name == "plain"
        kafka.send(source, [{"id": 1}, {"id": 2}])
        received = kafka.receive_count(sink, 2)
    assert sorted(value["id"] for _, value in received) == [1, 2]
    assert dict(spark.conf.getAll) == before
