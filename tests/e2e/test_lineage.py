"""Every output record says where it came from, whatever the user's function does with the columns."""

import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from conftest import Kafka
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import DefinitionError
from tailrace.testing import Lineage, Output, Record, at, run
from tailrace.testing.bench import shared_bench

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = "id long, card string, tags array<string>, at timestamp"
NAMES = {"tailrace.topic", "tailrace.partition", "tailrace.offset", "tailrace.event_time", "tailrace.id"}


def fresh(name: str) -> str:
    """A topic of this test's own: its offsets begin at 0."""
    return f"{name}-{secrets.token_hex(4)}"


def pipeline(transform: Callable[..., DataFrame], **changes: Any) -> tr.Pipeline:
    settings: dict[str, Any] = {
        "name": "lineage",
        "source": tr.KafkaSource(fresh("payments"), SCHEMA, event_time="at"),
        "sink": tr.KafkaSink(fresh("out")),
    }
    return tr.Pipeline(transform=transform, **(settings | changes))


def payments(count: int) -> list[Record]:
    """Record n lies in partition n % 2 at offset n // 2."""
    return [
        Record({"id": n, "card": f"c{n % 5}", "tags": ["a", "b"], "at": at(f"00:{n // 60 % 60:02d}:{n % 60:02d}")})
        for n in range(count)
    ]


def origin(here: tr.Pipeline, number: int) -> Lineage:
    moment = at(f"00:{number // 60 % 60:02d}:{number % 60:02d}")
    return Lineage(here.sources[0].topic_names[0], number % 2, number // 2, moment)


def require_origins(here: tr.Pipeline, output: Output) -> None:
    for record in output.records:
        assert record.lineage == origin(here, record.row["id"])


def test_every_one_of_5000_records_has_its_own_coordinates(every_mode: str) -> None:
    here = pipeline(lambda df: df.select("id"))
    output = run(here, payments(5000), every_mode)
    assert sorted(row["id"] for row in output.rows) == list(range(5000))
    assert all(record.row.keys() == {"id"} for record in output.records)
    require_origins(here, output)


def test_the_headers_are_these_bytes(mode: str) -> None:
    here = pipeline(lambda df: df.select("id"))
    output = run(here, [Record({"id": 1, "at": at("00:00:01.250")}, partition=1)], mode)
    topic = here.sources[0].topic_names[0]
    headers = output.records[0].headers
    assert headers[:4] == (
        ("tailrace.topic", topic.encode()),
        ("tailrace.partition", b"1"),
        ("tailrace.offset", b"0"),
        ("tailrace.event_time", b"1767225601250"),
    )
    ((name, value),) = headers[4:]
    assert name == "tailrace.id"
    assert re.fullmatch(rb"[0-9a-f-]{36}:0:o:0", value or b""), value


def test_results_have_no_name_where_their_number_in_a_record_is_not_known(every_mode: str) -> None:
    """A batch has no id that stays, and a shuffle sends the results of a record to several tasks."""
    shuffled = pipeline(lambda df: df.select("id", F.explode("tags").alias("tag")).repartition(2, "tag"))
    output = run(shuffled, payments(4), every_mode)
    assert len(output.records) == 8
    require_origins(shuffled, output)
    plain = run(pipeline(lambda df: df.select("id")), payments(4), "batch")
    for record in (*output.records, *plain.records):
        assert record.header("tailrace.id") is None


def test_the_function_sees_none_of_the_hidden_columns(spark: Any) -> None:
    seen: list[list[str]] = []

    def look(df: DataFrame) -> DataFrame:
        seen.append(df.select("*").columns)
        return df.select("*")

    output = run(pipeline(look), payments(2), "batch")
    assert seen == [["id", "card", "tags", "at"]]
    assert output.rows[0].keys() == {"id", "card", "tags", "at"}


def chained(df: DataFrame) -> DataFrame:
    return (
        df.withColumn("twice", F.col("id") * 2)
        .where("id >= 0")
        .drop("at")
        .alias("p")
        .selectExpr("p.id as id", "p.twice")
        .withColumnRenamed("twice", "double")
        .repartition(2, "id")
    )


def by_sql(df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("payments")
    return df.sparkSession.sql("with big as (select id, card from payments where id >= 0) select id from big")


def joined(how: str, *, static_first: bool = False) -> Callable[[DataFrame], DataFrame]:
    def join(df: DataFrame) -> DataFrame:
        table = df.sparkSession.createDataFrame([("c0", "gold"), ("c1", "silver")], "card string, level string")
        if static_first:
            return F.broadcast(table).join(df, "card", how).select("id", "level")
        return df.join(F.broadcast(table), "card", how).select("id")

    return join


def by_python(df: DataFrame) -> DataFrame:
    same = F.udf(lambda number: number, "long", useArrow=False)
    return df.where(same("id") >= 0).select(same("id").alias("id"))


def by_pandas(df: DataFrame) -> DataFrame:
    @F.pandas_udf("long")
    def same(numbers: pd.Series) -> pd.Series:
        return numbers

    return df.select(same(same("id")).alias("id"), F.explode("tags"))


STATELESS = {
    "Python function": (by_python, 1),
    "pandas function": (by_pandas, 2),
    "explode": (lambda df: df.select("id", F.explode("tags").alias("tag")), 2),
    "many steps": (chained, 1),
    "SQL with a common table expression": (by_sql, 1),
    "inner join": (joined("inner"), 0.4),
    "left join": (joined("left"), 1),
    "left semi join": (joined("left_semi"), 0.4),
    "join with the table first": (joined("inner", static_first=True), 0.4),
    "watermark": (lambda df: df.withWatermark("at", "1 minute").select("id"), 1),
}


@pytest.mark.parametrize("operation", STATELESS)
def test_coordinates_pass(operation: str) -> None:
    transform, times = STATELESS[operation]
    here = pipeline(transform)
    output = run(here, payments(50), "realtime")
    assert len(output.records) == 50 * times
    require_origins(here, output)


def test_a_union_of_two_topics_keeps_each_origin(every_mode: str) -> None:
    left, right = fresh("left"), fresh("right")
    here = pipeline(
        lambda a, b: a.select("id", F.lit("a").alias("side")).union(b.select("id", F.lit("b").alias("side"))),
        source=[tr.KafkaSource(left, "id long"), tr.KafkaSource(right, "id long")],
    )
    rows = [Record({"id": n}, topic=topic) for n in range(20) for topic in (left, right)]
    output = run(here, rows, every_mode)
    assert len(output.records) == 40
    for record in output.records:
        source = (record.header("tailrace.id") or b"").split(b":")[1:2]
        assert source == ([] if every_mode == "batch" else [b"0" if record.row["side"] == "a" else b"1"])
        side = left if record.row["side"] == "a" else right
        # Left and right alternate, and so do the partitions: each side lies in one of them.
        assert record.lineage.topic == side
        assert record.lineage.partition == (0 if side == left else 1)
        assert record.lineage.offset == record.row["id"]


def test_drop_duplicates_does_not_see_the_hidden_columns(every_mode: str) -> None:
    here = pipeline(lambda df: df.select("card").dropDuplicates())
    output = run(here, payments(50), every_mode)
    assert sorted(row["card"] for row in output.rows) == ["c0", "c1", "c2", "c3", "c4"]
    for record in output.records:
        number = record.lineage.offset * 2 + record.lineage.partition
        assert record.row["card"] == f"c{number % 5}", "the coordinates are those of the record that was kept"


def test_distinct_does_not_see_them_either(every_mode: str) -> None:
    here = pipeline(lambda df: df.select("card").distinct())
    output = run(here, payments(50), every_mode)
    assert {row["card"] for row in output.rows} == {"c0", "c1", "c2", "c3", "c4"}
    assert len(output.last("card")) == 5
    if every_mode != "realtime":
        assert len(output.rows) == 5


def test_past_an_aggregate_only_the_event_time_goes_on(every_mode: str) -> None:
    here = pipeline(lambda df: df.groupBy("card").count(), sink=tr.KafkaSink(fresh("out"), key="card"))
    rows = [Record(record.value, partition=0) for record in payments(10)]
    output = run(here, rows, every_mode)
    assert output.last("card")["c3"] == {"card": "c3", "count": 2}
    for record in output.records:
        assert {name for name, _ in record.headers} == {"tailrace.event_time"}
    latest = {record.row["card"]: record.lineage.event_time for record in output.records}
    assert latest["c3"] == at("00:00:08"), "the later of c3's two payments caused the last update"
    if every_mode == "realtime":
        times = [r.lineage.event_time for r in output.records if r.row["card"] == "c3"]
        assert times == [at("00:00:03"), at("00:00:08")], "one update per payment, each with its own time"


def test_the_user_may_name_the_event_time(mode: str) -> None:
    here = pipeline(
        lambda df: df.groupBy("card").agg(F.min("at").alias("first"), F.count("*").alias("n")),
        sink=tr.KafkaSink(fresh("out"), key="card", event_time="first"),
    )
    output = run(here, payments(10), mode)
    final = {record.row["card"]: record.lineage.event_time for record in output.records}
    assert final["c3"] == at("00:00:03")


def test_kafkas_own_timestamp_is_the_event_time_where_no_other_is_named(mode: str) -> None:
    here = pipeline(lambda df: df.select("id"), source=tr.KafkaSource(fresh("payments"), SCHEMA))
    output = run(here, [Record({"id": 1}, timestamp=at("10:00"))], mode)
    assert output.records[0].lineage.event_time == at("10:00")


def test_a_function_over_whole_rows_sees_no_hidden_column_and_lineage_ends_there(mode: str) -> None:
    def double(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            assert list(batch.columns) == ["id"]
            yield batch.assign(id=batch["id"] * 2)

    here = pipeline(lambda df: df.select("id").mapInPandas(double, "id long"))
    output = run(here, payments(4), mode)
    assert sorted(row["id"] for row in output.rows) == [0, 2, 4, 6]
    assert all(record.headers == () for record in output.records)


def test_duplicates_within_a_watermark_keep_their_origin(mode: str) -> None:
    here = pipeline(lambda df: df.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["card"]).select("id"))
    output = run(here, payments(20), mode)
    assert len(output.records) == 5
    require_origins(here, output)


def test_a_join_of_two_streams_has_the_origin_of_the_left_record() -> None:
    left, right = fresh("left"), fresh("right")
    schema = "id long, at timestamp"
    here = pipeline(
        lambda a, b: (
            a.withWatermark("at", "1 hour").join(b.withWatermark("at", "1 hour").drop("at"), "id").select("id")
        ),
        source=[tr.KafkaSource(left, schema), tr.KafkaSource(right, schema)],
    )
    rows = [Record({"id": n, "at": at("10:00")}, topic=topic, partition=0) for n in range(5) for topic in (right, left)]
    output = run(here, rows, "microbatch")
    assert sorted((record.row["id"], record.lineage.offset) for record in output.records) == [(n, n) for n in range(5)]
    assert {record.lineage.topic for record in output.records} == {left}


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (lambda a, _: a, "does not use its source"),
        (lambda a, b: a.join(b, a.id == b.id), "several columns 'id'"),
        (lambda a, b: a.union(b).withColumn("__tailrace_x", F.lit(1)), "returns a column '__tailrace_x'"),
    ],
    ids=["one left out", "two of one name", "a reserved name"],
)
def test_a_function_that_cannot_be_accounted_for_is_refused(mode: str, transform: Any, message: str) -> None:
    sources = [tr.KafkaSource(fresh("a"), "id long"), tr.KafkaSource(fresh("b"), "id long")]
    with pytest.raises(DefinitionError, match=message):
        run(pipeline(transform, source=sources), [], mode)


def test_lineage_can_be_turned_off(mode: str) -> None:
    here = pipeline(
        lambda df: df.select("id", "card"), sink=tr.KafkaSink(fresh("out"), headers={"card": "card"}), lineage=False
    )
    output = run(here, payments(4), mode)
    assert sorted(record.headers[0][1] for record in output.records) == [b"c0", b"c1", b"c2", b"c3"]
    assert all(len(record.headers) == 1 for record in output.records)


def test_the_users_own_headers_come_first(mode: str) -> None:
    here = pipeline(lambda df: df.select("id", "card"), sink=tr.KafkaSink(fresh("out"), headers={"card": "card"}))
    output = run(here, payments(4), mode)
    for record in output.records:
        assert record.headers[0] == ("card", f"c{record.row['id'] % 5}".encode())
        assert {name for name, _ in record.headers[1:]} == NAMES
    require_origins(here, output)


def test_a_running_query_says_what_it_cannot_carry(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(
        lambda df: df.groupBy("card").count(),
        source=tr.KafkaSource(kafka.topic("in"), SCHEMA),
        sink=tr.KafkaSink(kafka.topic("out")),
    )
    with tr.start(here, mode, bootstrap_servers=shared_bench().broker.bootstrap_servers, checkpoint=tmp_path) as query:
        assert "no coordinates" in query.lost_lineage
