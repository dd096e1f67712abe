"""What is refused before, or right after, a query starts: each with its reason, in the user's words."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Kafka
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from test_modes import SCHEMA, per_card, pipeline, risky, start

import tailrace as tr
from tailrace.engine import kafka_partitions
from tailrace.errors import (
    CheckpointFormatOld,
    CheckpointInUse,
    ColumnMissing,
    DefinitionError,
    OptionRefused,
    QueryRefused,
    SchemaInvalid,
    SchemaMismatch,
    SettingRefused,
    SlotsMissing,
    TopicMissing,
    UserCodeFailed,
)


def test_more_partitions_than_slots(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    here = tr.Pipeline(
        name="wide",
        source=tr.KafkaSource(kafka.topic("wide", partitions=9), schema=SCHEMA),
        transform=risky,
        sink=tr.KafkaSink(kafka.topic("out")),
    )
    with pytest.raises(SlotsMissing, match="needs 9 task slots and Spark has 8"):
        start(kafka, here, "realtime", tmp_path / "c")
    with start(kafka, here, "microbatch", tmp_path / "c"):
        pass


def test_a_shuffle_counts_too(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    here = pipeline(kafka, per_card)
    with pytest.raises(SlotsMissing, match=r"needs 9 task slots") as refused:
        tr.start(here, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", shuffle_partitions=7)
    assert "2 + 7 = 9" in refused.value.why


def test_two_runs_on_one_checkpoint(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    with start(kafka, here, mode, tmp_path / "c"), pytest.raises(CheckpointInUse):
        start(kafka, here, mode, tmp_path / "c")
    with start(kafka, here, mode, tmp_path / "c"):
        pass


def test_a_checkpoint_of_format_1(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 99.0}])
    old = {"spark.sql.streaming.stateStore.checkpointFormatVersion": "1"}
    running = tr.start(
        here, "microbatch", bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", conf=old
    )
    kafka.receive_count(here.sink.topic, 1)
    running.query.processAllAvailable()
    running.stop()
    with pytest.raises(CheckpointFormatOld):
        start(kafka, here, "realtime", tmp_path / "c")


def test_settings_that_cannot_work(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    with pytest.raises(SettingRefused, match=r"sortBeforeRepartition=true cannot work in real time"):
        tr.start(
            here,
            bootstrap_servers=kafka.bootstrap_servers,
            checkpoint=tmp_path / "c",
            conf={"spark.sql.execution.sortBeforeRepartition": "true"},
        )
    with pytest.raises(SettingRefused, match="the running Spark context has another"):
        tr.session(master="local[3]")


def test_changed_shuffle_partitions(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, per_card)
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 1.0}])
    with start(kafka, here, mode, tmp_path / "c") as running:
        kafka.receive_count(here.sink.topic, 1)
        # At least one batch must be complete for the checkpoint to pin anything.
        running.wait(timeout_s=3)
    with pytest.raises(SettingRefused, match="was written with 2"):
        tr.start(
            here,
            mode,
            bootstrap_servers=kafka.bootstrap_servers,
            checkpoint=tmp_path / "c",
            shuffle_partitions=3,
        )


def test_a_schema_that_cannot_be_understood(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaInvalid, match="'id lnog' cannot be parsed") as refused:
        start(kafka, pipeline(kafka, risky, schema="id lnog"), mode, tmp_path / "c")
    assert "\n" not in refused.value.why
    assert "lnog" in refused.value.why.lower()


def test_a_schema_that_fits_no_record(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, risky, schema="order long, customer string, card string, amount double")
    kafka.send(here.sources[0].topic_names[0], [{"name": "x", "colour": "red"} for _ in range(10)])
    with pytest.raises(SchemaMismatch, match="has a column of the schema") as refused:
        start(kafka, here, mode, tmp_path / "c")
    assert "colour, name" in refused.value.why


def test_a_key_that_is_no_column(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, lambda frame: frame.select("id"))
    with pytest.raises(ColumnMissing, match="'card' is not a column"):
        start(kafka, here, mode, tmp_path / "c")


def test_a_function_that_raises_or_returns_something_else(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    def broken(frame: DataFrame) -> DataFrame:
        return frame.select("no_such_column")

    with pytest.raises(UserCodeFailed, match=r"test_refusals.py line \d+ in broken") as failed:
        start(kafka, pipeline(kafka, broken), mode, tmp_path / "c")
    assert "\n" not in failed.value.what
    with pytest.raises(DefinitionError, match="returned NoneType"):
        start(kafka, pipeline(kafka, lambda _: None), mode, tmp_path / "d")


def test_python_functions_are_refused_by_a_query_of_sparks_own(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Those that Tailrace starts run them; the session that they were cloned from stays stock Spark."""

    @F.udf("double")
    def half(amount):
        return amount / 2

    here = pipeline(kafka, lambda frame: frame.withColumn("half", half("amount")))
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 9.0}])
    source, sink = here.sources[0].topic_names[0], kafka.topic("stock")
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    rows = read.option("subscribe", source).option("startingOffsets", "earliest").load()

    def by_spark(value: Any, checkpoint: str) -> Any:
        writer = rows.select(value.cast("string").alias("value")).writeStream.format("kafka").outputMode("update")
        writer = writer.option("kafka.bootstrap.servers", kafka.bootstrap_servers).option("topic", sink)
        return writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(realTime="1 seconds").start()

    with start(kafka, here, "realtime", tmp_path / "c"):
        assert kafka.receive_count(here.sink.topic, 1)[0][1]["half"] == 4.5
        plain = by_spark(F.col("value"), "plain")
        kafka.receive_count(sink, 1)
        plain.stop()
        with pytest.raises(PySparkException, match=r"OPERATOR_OR_SINK_NOT_IN_ALLOWLIST.*EvalPython"):
            by_spark(half(F.lit(1.0)), "python").awaitTermination(60)


def test_a_python_table_function_runs_in_micro_batch_alone(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    class Twice:
        def eval(self, amount: float) -> Iterator[tuple[float]]:
            yield (amount,)
            yield (amount,)

    twice = F.udtf(Twice, returnType="again double")

    def doubled(payments: DataFrame) -> DataFrame:
        return payments.lateralJoin(twice(F.col("amount").outer()))

    here = pipeline(kafka, doubled)
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 9.0}])
    with pytest.raises(QueryRefused, match="a Python table function cannot run in real time"):
        start(kafka, here, "realtime", tmp_path / "c")
    with start(kafka, here, "microbatch", tmp_path / "d"):
        assert [row["again"] for _, row in kafka.receive_count(here.sink.topic, 2)] == [9.0, 9.0]


def test_state_in_python_runs_in_micro_batch_alone(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    def count(card: tuple[str], groups: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        seen = (state.get[0] if state.exists else 0) + sum(len(group) for group in groups)
        state.update((seen,))
        yield pd.DataFrame({"card": [card[0]], "seen": [seen]})

    def counted(payments: DataFrame) -> DataFrame:
        grouped = payments.groupBy("card")
        return grouped.applyInPandasWithState(count, "card string, seen long", "seen long", "update", "NoTimeout")

    here = pipeline(kafka, counted)
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 9.0}])
    with pytest.raises(QueryRefused, match="applyInPandasWithState cannot run in real time") as refused:
        start(kafka, here, "realtime", tmp_path / "c")
    assert refused.value.code == "OPERATOR_REFUSED"
    with start(kafka, here, "microbatch", tmp_path / "d"):
        assert kafka.receive_count(here.sink.topic, 1)[0][1] == {"card": "c", "seen": 1}


def test_an_exception_in_a_python_function_names_its_line(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    @F.udf("double")
    def bad(amount):
        return amount / 0

    here = pipeline(kafka, lambda frame: frame.withColumn("bad", bad("amount")))
    running = start(kafka, here, mode, tmp_path / "c")
    kafka.send(here.sources[0].topic_names[0], [{"id": 1, "card": "c", "amount": 9.0}])
    with pytest.raises(UserCodeFailed, match=r"test_refusals.py line \d+ in bad: ZeroDivisionError") as failed:
        running.wait(timeout_s=60)
    assert "Traceback" in failed.value.detail


def test_other_output_modes(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", kafka.topic("in"))
        .load()
        .groupBy("key")
        .count()
        .selectExpr("cast(key as string) as key", "cast(count as string) as value")
    )
    writer = (
        frame.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("topic", kafka.topic("out"))
        .outputMode("complete")
        .queryName("counts")
    )
    with pytest.raises(QueryRefused, match="the output mode Complete cannot run in real time") as refused:
        start(kafka, writer, "realtime", tmp_path / "c")
    assert refused.value.code == "OUTPUT_MODE_REFUSED"


def test_a_writer_without_name_and_checkpoint(spark: Any, kafka: Kafka) -> None:
    frame = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("subscribe", kafka.topic("in"))
        .load()
    )
    with pytest.raises(DefinitionError, match="neither a name nor a checkpoint"):
        tr.start(frame.writeStream.format("console"))


def test_partitions_are_asked_through_spark_where_only_java_can_connect(spark: Any, kafka: Kafka) -> None:
    topic = kafka.topic("java-only", partitions=5)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    assert kafka_partitions(spark, options, [topic]) == {topic: 5}
    with pytest.raises(TopicMissing):
        kafka_partitions(spark, options, ["not-there"])


def test_starting_offsets_that_leave_a_partition_out(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(kafka, risky)
    topic = here.sources[0].topic_names[0]
    partial = replace(here, source=replace(here.source, starting={topic: {"0": 0}}))
    with pytest.raises(OptionRefused, match=f"has no offset for {topic}-1"):
        start(kafka, partial, mode, tmp_path / "c")


def test_a_setting_that_comes_too_late(spark: Any, kafka: Kafka, mode: str, tmp_path: Path) -> None:
    with pytest.raises(SettingRefused, match="cannot be changed now"):
        tr.start(
            pipeline(kafka, risky),
            mode,
            bootstrap_servers=kafka.bootstrap_servers,
            checkpoint=tmp_path / "c",
            conf={"spark.sql.warehouse.dir": str(tmp_path)},
        )
