"""Every format in, every form out: sources and sinks in full, in every mode."""

import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from combined import MODES, combined
from conftest import Kafka
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import ColumnMissing, DefinitionError, QueryFailed, TopicMissing
from tailrace.testing import Record, at, run
from tailrace.testing.bench import shared_bench

pytestmark = pytest.mark.usefixtures("spark")


SHORTEST = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}


def fresh(name: str) -> str:
    return f"{name}-{secrets.token_hex(4)}"


def pipeline(source: tr.KafkaSource, transform: Any = lambda df: df, **sink: Any) -> tr.Pipeline:
    topic = None if "topic_column" in sink and "topic" not in sink else sink.pop("topic", fresh("out"))
    return tr.Pipeline(name="formats", source=source, transform=transform, sink=tr.KafkaSink(topic, **sink))


def test_plain_text(mode: str) -> None:
    here = pipeline(
        tr.KafkaSource(fresh("lines"), format="string"), lambda df: df.select(F.upper("value").alias("value"))
    )
    output = run(here, ["grüezi", "", Record(None), b"\xff"], mode)
    assert sorted(map(str, output.rows)) == sorted(map(str, [{"value": "GRÜEZI"}, {"value": ""}, {}]))
    assert [letter.value for letter in output.dead_letters] == [b"\xff"]


def test_bytes_go_through_unchanged(every_mode: str) -> None:
    here = pipeline(tr.KafkaSource(fresh("raw"), format="bytes"), value="value")
    sent = [b"", b"\x00\xff\xfe", bytes(range(256)), b"{"]
    output = run(here, [*sent, Record(None)], every_mode)
    assert sorted(record.value for record in output.records if record.value is not None) == sorted(sent)
    assert [record.value for record in output.records].count(None) == 1, "a tombstone stays one"
    assert not output.dead_letters


def test_a_pattern_reads_every_topic_that_it_matches(mode: str) -> None:
    prefix = fresh("orders")
    here = pipeline(tr.KafkaSource(schema="id long", pattern=f"{prefix}\\..*"), lambda df: df.select("id"))
    rows = [Record({"id": n}, topic=f"{prefix}.{side}") for n, side in enumerate(["east", "west", "east"])]
    output = run(here, [*rows, Record({"id": 99}, topic=fresh("other"))], mode)
    assert sorted(row["id"] for row in output.rows) == [0, 1, 2]
    assert {record.lineage.topic for record in output.records} == {f"{prefix}.east", f"{prefix}.west"}


def test_a_pattern_without_a_match_is_an_error(kafka: Kafka, mode: str, tmp_path: Path) -> None:
    here = pipeline(tr.KafkaSource(schema="id long", pattern="no-such-.*"), topic=kafka.topic("out"))
    with pytest.raises(TopicMissing, match="no topic matches"):
        tr.start(here, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path)


def test_metadata_on_request(mode: str) -> None:
    topic = fresh("in")
    source = tr.KafkaSource(topic, "id long", metadata="kafka")
    here = pipeline(source, lambda df: df.select("id", "kafka.*"))
    sent = Record({"id": 7}, key=b"k", headers=[("a", b"1")], partition=1, timestamp=at("08:00"))
    (row,) = run(here, [sent], mode).rows
    assert row == {
        "id": 7,
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": "2026-01-01T08:00:00.000Z",
        "key": "aw==",
        "headers": [{"key": "a", "value": "MQ=="}],
    }


def test_options_of_the_json_reader(mode: str) -> None:
    source = tr.KafkaSource(fresh("in"), "on date", json_options={"dateFormat": "dd.MM.yyyy"})
    output = run(pipeline(source), [{"on": "24.12.2026"}, {"on": "2026-12-24"}], mode)
    assert output.rows == [{"on": "2026-12-24"}]
    assert len(output.dead_letters) == 1


def test_key_headers_and_route(every_mode: str) -> None:
    left, right, other = fresh("left"), fresh("right"), fresh("other")
    target = F.when(F.col("id") == 1, left).when(F.col("id") == 2, right)
    here = pipeline(
        tr.KafkaSource(fresh("in"), "id long, name string"),
        lambda df: df.withColumn("target", target),
        topic=other,
        key="id",
        topic_column="target",
        headers={"name": "name", "number": "id"},
    )
    output = run(here, [{"id": n, "name": f"n{n}"} for n in (1, 2, 3)], every_mode, topics=[left, right])
    assert {record.topic: record.row for record in output.records} == {
        left: {"id": 1, "name": "n1"},
        right: {"id": 2, "name": "n2"},
        other: {"id": 3, "name": "n3"},
    }, "the topic column itself is not written"
    for record in output.records:
        number = record.row["id"]
        assert record.key == str(number).encode()
        assert record.headers[:2] == (("name", f"n{number}".encode()), ("number", str(number).encode()))


def test_headers_from_a_column(mode: str) -> None:
    here = pipeline(
        tr.KafkaSource(fresh("in"), "id long", metadata="kafka"),
        lambda df: df.select("id", F.col("kafka.headers").alias("headers")),
        headers="headers",
    )
    (record,) = run(here, [Record({"id": 1}, headers=[("a", b"\x00"), ("a", b"2")])], mode).records
    assert record.row == {"id": 1}
    assert record.headers[:2] == (("a", b"\x00"), ("a", b"2"))
    assert record.lineage.offset == 0


def test_a_nested_key_is_json_and_a_binary_one_stays(mode: str) -> None:
    nested = F.struct(F.lit(1).alias("a"), F.lit("x").alias("b"))
    here = pipeline(tr.KafkaSource(fresh("in"), "id long"), lambda df: df.withColumn("k", nested), key="k")
    (record,) = run(here, [{"id": 1}], mode).records
    assert record.key == b'{"a":1,"b":"x"}'


def test_a_row_without_a_topic_is_an_error(mode: str) -> None:
    here = pipeline(
        tr.KafkaSource(fresh("in"), "id long"),
        lambda df: df.withColumn("target", F.lit(None).cast("string")),
        topic_column="target",
    )
    with pytest.raises(QueryFailed, match="has no topic: its topic column is null"):
        run(here, [{"id": 1}], mode)


def test_a_row_for_a_missing_topic_is_an_error(mode: str) -> None:
    here = pipeline(
        tr.KafkaSource(fresh("in"), "id long"),
        lambda df: df.withColumn("target", F.lit("no-such-topic")),
        topic_column="target",
    )
    with pytest.raises(TopicMissing, match="query 'formats' has a row for topic 'no-such-topic'"):
        run(here, [{"id": 1}], mode)


@pytest.mark.parametrize(
    ("sink", "error"),
    [
        ({"key": "nope"}, ColumnMissing),
        ({"value": "nope"}, ColumnMissing),
        ({"topic_column": "nope"}, ColumnMissing),
        ({"headers": "nope"}, ColumnMissing),
        ({"headers": {"a": "nope"}}, ColumnMissing),
        ({"event_time": "nope"}, ColumnMissing),
        ({"value": "id"}, DefinitionError),
        ({"headers": "id"}, DefinitionError),
    ],
)
def test_a_sink_that_does_not_fit_is_refused_before_the_start(sink: dict[str, Any], error: type[Exception]) -> None:
    here = pipeline(tr.KafkaSource(fresh("in"), "id long"), **sink, topic=fresh("out"))
    with pytest.raises(error, match="the sink's"):
        run(here, [{"id": 1}], "realtime")


def _sent_at(topic: str) -> None:
    bench = shared_bench()
    bench.make_topics([topic], 2)
    moments = [at("10:00") + timedelta(minutes=n) for n in range(6)]
    bench.send([Record({"id": n}, topic=topic, timestamp=moment) for n, moment in enumerate(moments)])


STARTING = {
    "earliest": ("earliest", [0, 1, 2, 3, 4, 5]),
    "later than all": (at("23:00"), []),
    "timestamp": (at("10:02"), [2, 3, 4, 5]),
    "offsets": ({"0": 2, "1": -2}, [1, 3, 4, 5]),
}


@pytest.mark.parametrize(("start", "mode"), combined(list(STARTING), MODES))
def test_where_the_first_run_begins(kafka: Kafka, mode: str, tmp_path: Path, start: str) -> None:
    starting, expected = STARTING[start]
    topic, out = fresh("in"), kafka.topic("out", partitions=1)
    _sent_at(topic)
    place = {topic: starting} if isinstance(starting, dict) else starting
    here = pipeline(tr.KafkaSource(topic, "id long", starting=place), lambda df: df.select("id"), topic=out)
    tr.run(here, mode, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "c", conf=SHORTEST, once=True)
    rows = shared_bench().read(out, {}, shared_bench().ends([out])[out])
    assert sorted(record.row["id"] for record in rows) == expected


@pytest.mark.parametrize(("kind", "mode"), combined(["parquet", "csv", "jdbc"], MODES))
def test_enrichment_from_a_static_table(spark: Any, mode: str, kind: str, tmp_path: Path) -> None:
    table = spark.createDataFrame([("DE", "europe"), ("JP", "asia")], "country string, region string")
    place = str(tmp_path / "table")
    jdbc = {"url": f"jdbc:derby:{tmp_path}/db;create=true", "dbtable": "regions"}
    if kind == "parquet":
        table.write.parquet(place)
    elif kind == "csv":
        table.write.csv(place, header=True)
    else:
        table.write.format("jdbc").options(**jdbc).save()

    def enrich(df: Any) -> Any:
        reader = df.sparkSession.read
        if kind == "parquet":
            regions = reader.parquet(place)
        elif kind == "csv":
            regions = reader.csv(place, header=True, schema="country string, region string")
        else:
            regions = reader.format("jdbc").options(**jdbc).load()
        return df.join(F.broadcast(regions), "country", "left")

    here = pipeline(tr.KafkaSource(fresh("in"), "id long, country string"), enrich)
    if kind == "jdbc":
        Path("derby.log").unlink(missing_ok=True)
    output = run(here, [{"id": 1, "country": "DE"}, {"id": 2, "country": "XX"}, {"id": 3, "country": "JP"}], mode)
    assert {row["id"]: row.get("region") for row in output.rows} == {1: "europe", 2: None, 3: "asia"}
    assert all(record.lineage.offset is not None for record in output.records)
