"""Python functions on rows of any width, with and without Spark's whole-stage code generation."""

import functools
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from combined import combined
from conftest import Kafka
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from python_kinds import COLUMN_KINDS, KINDS, column

import tailrace as tr
from tailrace import engine
from tailrace.testing import require_equal_modes
from tailrace.worker import pickled_worker

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


def twice(value: int) -> int:
    return value * 2


def frames_twice(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        yield frame.assign(a=frame["a"] * 2)


def batches_twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pandas(batch.to_pandas().assign(a=lambda frame: frame["a"] * 2), preserve_index=False)


def through(kind: str, rows: DataFrame) -> DataFrame:
    """Double ``a`` and keep the other columns."""
    if kind == "map-pandas":
        return rows.mapInPandas(frames_twice, rows.schema)
    if kind == "map-arrow":
        return rows.mapInArrow(batches_twice, rows.schema)
    return rows.withColumn("a", column(kind, twice, "long")("a"))


def widened(rows: DataFrame, width: int) -> DataFrame:
    return rows.withColumns({f"c{number}": F.lit(number) + F.col("a") for number in range(1, width)})


def greatest(rows: DataFrame) -> Column:
    """Use every column: the optimizer drops unused ones before the function."""
    return F.array_max(F.array(*map(F.col, rows.columns)))


# Above 100 columns Spark generates no code by default.
@pytest.mark.parametrize(("generated", "widths"), [("true", (1, 100, 300)), ("false", (1, 100, 300))])
def test_every_kind_of_function_takes_rows_of_every_width(
    spark: SparkSession, generated: str, widths: tuple[int, ...]
) -> None:
    own = engine.clone_session(spark)
    own.conf.set("spark.sql.codegen.wholeStage", generated)
    engine.install_python(own, "wide", pickled_worker(), timeout_ms=60_000, dead_letters=None, always=True)
    first = own.range(2).select(F.col("id").alias("a")).coalesce(1)
    shapes = []
    for kind in KINDS:
        for width in widths:
            rows = through(kind, widened(first, width))
            shapes.append(rows.select(F.lit(kind), F.lit(width), "a", greatest(rows)))
    results = functools.reduce(DataFrame.union, shapes).collect()
    expected = {(kind, width, 2 * a, max(2 * a, a + width - 1)) for kind in KINDS for width in widths for a in range(2)}
    assert {tuple(row) for row in results} == expected


def test_wide_rows_go_through_every_kind_in_every_mode() -> None:
    def chained(rows: DataFrame) -> DataFrame:
        wide = functools.reduce(lambda frame, kind: through(kind, frame), KINDS, widened(rows, 120))
        return wide.select("a", greatest(wide).alias("most"))

    name = f"wide-{secrets.token_hex(4)}"
    source, sink = tr.KafkaSource(f"{name}-in", "a long"), tr.KafkaSink(f"{name}-out")
    output = require_equal_modes(
        tr.Pipeline(name, source, chained, sink, python_errors="dead-letter"), [{"a": 0}, {"a": 1}]
    )
    factor = 2 ** len(KINDS)
    assert sorted((row["a"], row["most"]) for row in output.rows) == [(0, 119), (factor, factor)]


WIDE, WIDE_WITHOUT_LINEAGE = 96, 101
"""The fewest columns with which Spark generates no code: map functions get no hidden ones, the others four."""


# Above, every kind runs with and without generated code.
@pytest.mark.parametrize(("kind", "generated"), combined(["udf", "pandas", "map-arrow"], ["true", "false"]))
def test_a_wide_source_in_real_time(kafka: Kafka, tmp_path: Path, kind: str, generated: str) -> None:
    """Without dead letters, so that the engine's own columns are the four of the lineage."""
    width = WIDE if kind in COLUMN_KINDS else WIDE_WITHOUT_LINEAGE
    names = ["a", *(f"c{number}" for number in range(1, width))]
    schema = ", ".join(f"{name} long" for name in names)
    here = tr.Pipeline(
        f"wide-{secrets.token_hex(4)}",
        tr.KafkaSource(kafka.topic("in"), schema, starting="earliest"),
        lambda rows: through(kind, rows),
        tr.KafkaSink(kafka.topic("out", 1)),
        malformed="drop",
    )
    sent = [{name: 1000 * number + place for place, name in enumerate(names)} for number in range(1, 5)]
    kafka.send_to_every_partition(here.sources[0].topic_names[0], sent)
    where: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
    tr.run(here, "realtime", once=True, conf={"spark.sql.codegen.wholeStage": generated}, **where)
    written = [row for _, row in kafka.receive_count(here.sink.topic or "", len(sent))]
    assert sorted(written, key=lambda row: row["a"]) == [row | {"a": 2 * row["a"]} for row in sent]
