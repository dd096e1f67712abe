"""A source that the function of a pipeline uses more than once: each use is a read of its own."""

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from test_modes import pipeline as payments_pipeline
from test_modes import start

import tailrace as tr
from tailrace.errors import CheckpointOutgrown
from tailrace.kafka.topics import log_ends
from tailrace.testing import Record, at, require_equal_modes, run

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = "id long, kind string, amount double, at timestamp"


def pipeline(transform: Callable[..., DataFrame], **changes: Any) -> tr.Pipeline:
    name = f"reads-{secrets.token_hex(4)}"
    settings: dict[str, Any] = {
        "name": name,
        "source": tr.KafkaSource(f"{name}-in", SCHEMA),
        "transform": transform,
        "sink": tr.KafkaSink(f"{name}-out"),
    }
    return tr.Pipeline(**(settings | changes))


def event(number: int) -> dict[str, Any]:
    return {"id": number, "kind": ["bid", "person"][number % 2], "amount": float(number), "at": at("12:00")}


def bids_and_people(events: DataFrame) -> DataFrame:
    """Two branches of a topic of mixed events."""
    bids = events.where("kind = 'bid'").select("id", F.col("amount").alias("price"))
    people = events.where("kind = 'person'").select("id", F.lit(None).cast("double").alias("price"))
    return bids.union(people)


def all_and_large(events: DataFrame) -> DataFrame:
    """Some records are in both branches."""
    return events.select("id", F.lit("all").alias("of")).union(
        events.where("amount >= 50").select("id", F.lit("large").alias("of"))
    )


def test_two_branches_of_a_topic_of_mixed_events() -> None:
    output = require_equal_modes(pipeline(bids_and_people), [event(number) for number in range(100)])
    assert sorted(row["id"] for row in output.rows) == list(range(100))
    assert sum("price" in row for row in output.rows) == 50


def test_a_record_in_both_branches_comes_out_twice_with_its_origin(every_mode: str) -> None:
    here = pipeline(all_and_large)
    rows = [Record(event(number), partition=number % 2) for number in range(100)]
    output = run(here, rows, every_mode)
    assert Counter(row["id"] for row in output.rows) == {number: 1 + (number >= 50) for number in range(100)}
    topic = here.sources[0].topic_names[0]
    for record in output.records:
        lineage, number = record.lineage, record.row["id"]
        assert (lineage.topic, lineage.partition, lineage.offset) == (topic, number % 2, number // 2)


def test_a_malformed_record_is_reported_once(every_mode: str) -> None:
    here = pipeline(all_and_large)
    output = run(here, [event(60), b"{broken", event(61)], every_mode)
    assert sorted(row["id"] for row in output.rows) == [60, 60, 61, 61]
    assert (output.malformed, len(output.dead_letters)) == ({"not_json": 1}, 1)


def test_a_common_table_expression_and_a_view(every_mode: str) -> None:
    def in_sql(events: DataFrame) -> DataFrame:
        events.createOrReplaceTempView("reads_events")
        return events.sparkSession.sql(
            "with dear as (select id, amount from reads_events where amount >= 50) "
            "select id from dear union all select -id as id from dear"
        )

    output = run(pipeline(in_sql), [event(number) for number in (1, 51, 52)], every_mode)
    assert sorted(row["id"] for row in output.rows) == [-52, -51, 51, 52]


def test_three_uses_beside_another_source(every_mode: str) -> None:
    sources = [tr.KafkaSource(f"{name}-{secrets.token_hex(4)}", "id long") for name in ("a", "b")]
    here = pipeline(lambda a, b: a.union(b).union(a).union(a), source=sources)
    rows = [Record({"id": n}, topic=source.topic_names[0]) for n, source in enumerate(sources)]
    output = run(here, rows, every_mode)
    assert sorted(row["id"] for row in output.rows) == [0, 0, 0, 1]


def test_state_after_the_union(every_mode: str) -> None:
    here = pipeline(lambda events: all_and_large(events).groupBy("of").count())
    output = run(here, [event(number) for number in range(0, 100, 10)], every_mode)
    assert output.last("of") == {"all": {"of": "all", "count": 10}, "large": {"of": "large", "count": 5}}


def test_python_functions_in_a_branch(every_mode: str) -> None:
    double = F.udf(lambda number: number * 2, "long")
    here = pipeline(lambda events: events.select("id").union(events.select(double("id").alias("id"))))
    output = run(here, [event(number) for number in (1, 5)], every_mode)
    assert sorted(row["id"] for row in output.rows) == [1, 2, 5, 10]


def test_a_join_with_itself_runs_in_microbatch() -> None:
    def joined(events: DataFrame) -> DataFrame:
        left = events.withWatermark("at", "1 hour").alias("left")
        right = events.withWatermark("at", "1 hour").alias("right")
        return left.join(right, F.expr("left.id = right.id and left.at = right.at")).select("left.id")

    output = run(pipeline(joined), [event(number) for number in range(4)], "microbatch")
    assert sorted(row["id"] for row in output.rows) == [0, 1, 2, 3]


def test_the_modes_continue_each_other_and_the_slots_are_counted(kafka: Kafka, tmp_path: Path) -> None:
    def ids_twice(payments: DataFrame) -> DataFrame:
        return payments.select("card", "id").union(payments.select("card", (-F.col("id")).alias("id")))

    here = payments_pipeline(kafka, ids_twice)
    topic, out = here.sources[0].topic_names[0], here.sink.topic
    assert out is not None
    for number, mode in enumerate(["realtime", "microbatch", "realtime"], start=1):
        with start(kafka, here, mode, tmp_path / "c") as running:
            kafka.send(topic, [{"id": each, "card": "c"} for each in range(number * 10, number * 10 + 10)])
            received = kafka.receive_count(out, number * 20)
            assert running.slots.stages == (4,), "two partitions, read twice"
            if mode == "realtime":
                places = [(each.source, each.partition) for each in running.positions()]
                assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert Counter(abs(value["id"]) for _, value in received) == dict.fromkeys(range(10, 40), 2)
    assert sum(log_ends(kafka.config, {out: 2})[out].values()) == 60, "nothing repeated"


def test_a_use_more_needs_a_fresh_checkpoint(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    once = payments_pipeline(kafka, lambda payments: payments.select("card", "id"))
    kafka.send(once.sources[0].topic_names[0], [{"id": 1, "card": "c"}])
    with start(kafka, once, mode, tmp_path / "c"):
        kafka.receive_count(once.sink.topic, 1)
    twice = replace(once, transform=lambda payments: once.transform(payments).union(once.transform(payments)))
    with pytest.raises(CheckpointOutgrown, match="the checkpoint has 1 source and the query has 2 sources"):
        start(kafka, twice, mode, tmp_path / "c").wait(30)
