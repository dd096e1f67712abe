"""Python functions give the same results in real time, in batch and in micro-batch.

`generated.py` sets the number of generated inputs for each kind.
"""

import functools
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from conftest import Kafka, of_sparks_env, wait_until
from generated import SOAK, on_spark
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from python_kinds import KINDS, MAP_KINDS, doubling

import tailrace as tr
from tailrace.prepare.loader import load_pipeline
from tailrace.testing import require_equal_modes, run

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(1800)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


TYPES = {
    "flag": ("boolean", st.booleans()),
    "tiny": ("byte", st.integers(-128, 127)),
    "small": ("short", st.integers(-(2**15), 2**15 - 1)),
    "number": ("int", st.integers(-(2**31), 2**31 - 1)),
    # A pandas column with a null has floats: larger integers would depend on the other rows of their batch.
    "large": ("long", st.integers(-(2**53), 2**53)),
    "single": ("float", st.floats(width=16, allow_nan=False, allow_infinity=False)),
    "real": ("double", st.floats(allow_nan=False, allow_infinity=False)),
    "price": ("decimal(12,2)", st.integers(-(10**11), 10**11).map(lambda cents: cents / 100)),
    "exact": ("decimal(38,10)", st.decimals(-(10**27), 10**27, places=10).map(str)),
    "word": ("string", st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)),
    "blob": ("binary", st.sampled_from(["", "AA==", "/wA=", "aGVsbG8="])),
    "day": ("date", st.dates(min_value=pd.Timestamp("1900-01-01").date(), max_value=pd.Timestamp("2200-01-01").date())),
    "moment": ("timestamp", st.datetimes(pd.Timestamp("1902-01-01"), pd.Timestamp("2100-01-01"))),
    "local": ("timestamp_ntz", st.datetimes(pd.Timestamp("1902-01-01"), pd.Timestamp("2100-01-01"))),
    "span": ("interval day to second", st.integers(0, 59).map(lambda n: f"INTERVAL '1 02:03:{n:02d}' DAY TO SECOND")),
    "any": ("variant", st.integers(0, 9) | st.text("ab", max_size=2) | st.lists(st.integers(0, 9), max_size=2)),
    "list": ("array<string>", st.lists(st.text("ab", max_size=2) | st.none(), max_size=3)),
    "nested": ("array<array<int>>", st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2)),
    "map": ("map<string,int>", st.dictionaries(st.text("ab", min_size=1, max_size=2), st.integers(0, 9), max_size=2)),
    "pair": ("struct<x:int,y:string>", st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.text("ab", max_size=2)})),
    "deep": (
        "struct<a:array<struct<b:int>>>",
        st.fixed_dictionaries({"a": st.lists(st.fixed_dictionaries({"b": st.integers(0, 9)}), max_size=2)}),
    ),
}
"""Every type that a record can have and a Python function takes."""
SCHEMA = ", ".join(["id long", *(f"{name} {kind}" for name, (kind, _) in TYPES.items())])


def json_value(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value


rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.integers(0, 1000)},
        optional={name: values.map(json_value) | st.none() for name, (_, values) in TYPES.items()},
    ),
    min_size=20,
    max_size=60,
)


def same(value: Any) -> Any:
    return value


def pipeline(transform: Any, schema: str = "a long", **more: Any) -> tr.Pipeline:
    name = f"python-{secrets.token_hex(4)}"
    return tr.Pipeline(name, tr.KafkaSource(f"{name}-in", schema), transform, tr.KafkaSink(f"{name}-out"), **more)


def every_column_through(kind: str, events: DataFrame) -> DataFrame:
    """Every column goes to Python and comes back as it was."""

    def series(values: pd.Series) -> pd.Series:
        return values

    def frame(values: pd.DataFrame) -> pd.DataFrame:
        return values

    def array(values: pa.Array) -> pa.Array:
        return values

    def stream(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from batches

    def frames(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        yield from batches

    def arrays(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        yield from batches

    if kind in MAP_KINDS:
        return (events.mapInPandas if kind == "map-pandas" else events.mapInArrow)(stream, events.schema)
    functions: dict[str, Callable[[str], Any]] = {
        "udf": lambda returns: F.udf(same, returns, useArrow=False),
        "udf-arrow": lambda returns: F.udf(same, returns, useArrow=True),
        "pandas": lambda returns: F.pandas_udf(frame if returns.startswith("struct") else series, returns),
        "pandas-iter": lambda returns: F.pandas_udf(frames if returns.startswith("struct") else stream, returns),
        "arrow": lambda returns: F.arrow_udf(array, returns),
        "arrow-iter": lambda returns: F.arrow_udf(arrays, returns),
    }
    # One that takes an iterator has a worker of its own.
    types = {name: TYPES[name] for name in ("price", "word", "moment", "pair")} if kind.endswith("-iter") else TYPES
    return events.select("id", *(functions[kind](returns)(name).alias(name) for name, (returns, _) in types.items()))


@pytest.mark.parametrize("kind", KINDS if SOAK else ["udf", "udf-arrow", "pandas", "arrow-iter", "map-pandas"])
def test_every_type_in_both_directions(kind: str) -> None:
    here = pipeline(lambda events: every_column_through(kind, events), SCHEMA)

    @on_spark
    @given(rows)
    def agree(sent: list[Any]) -> None:
        assert len(require_equal_modes(here, sent).rows) == len(sent)

    agree()


PLAIN = ("flag", "tiny", "small", "number", "large", "single", "real", "word")
"""The columns that go to functions as plain columns if no number is null."""
whole_rows = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 1000), **{name: TYPES[name][1] for name in PLAIN}}),
    min_size=20,
    max_size=60,
)


def plain_columns_through(kind: str, events: DataFrame) -> DataFrame:
    """Send plain columns through functions of a kind; one of them returns nulls."""

    def same(value: Any) -> Any:
        return value

    def positive_value(value: float | None) -> float | None:
        return value if value is None or value > 0 else None

    def same_series(values: pd.Series) -> pd.Series:
        return values

    def positive(values: pd.Series) -> pd.Series:
        return values.where(values > 0)

    def same_stream(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from batches

    def positive_stream(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        yield from map(positive, batches)

    def frames(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in batches:
            yield frame.assign(real=positive(frame["real"]))

    if kind == "map-pandas":
        return events.mapInPandas(frames, events.schema)
    names = PLAIN[::3] if kind == "pandas-iter" else PLAIN  # one that takes an iterator has a worker of its own
    kinds: dict[str, Any] = {
        "udf-arrow": (functools.partial(F.udf, useArrow=True), same, positive_value),
        "pandas": (F.pandas_udf, same_series, positive),
        "pandas-iter": (F.pandas_udf, same_stream, positive_stream),
    }
    function, *pair = kinds[kind]
    columns = {name: function(pair[name == "real"], TYPES[name][0])(name) for name in names}
    return events.select("id", *(column.alias(name) for name, column in columns.items()))


@pytest.mark.parametrize("kind", ["udf-arrow", "pandas", "pandas-iter", "map-pandas"])
def test_plain_columns_in_both_directions(kind: str) -> None:
    schema = ", ".join(["id long", *(f"{name} {TYPES[name][0]}" for name in PLAIN)])
    here = pipeline(lambda events: plain_columns_through(kind, events), schema)

    @on_spark
    @given(whole_rows, rows)
    def agree(whole: list[Any], with_nulls: list[Any]) -> None:
        kept = [{name: row.get(name) for name in ("id", *PLAIN)} for row in with_nulls]
        sent = [*whole, *kept]
        assert len(require_equal_modes(here, sent).rows) == len(sent)

    agree()


class Model:
    """A callable with state, like a model, that records each load."""

    def __init__(self, factor: int, loads: Path | None = None) -> None:
        self.factor = factor
        self.loads = loads

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.loads is not None:
            (self.loads / f"{os.getpid()}-{secrets.token_hex(4)}").touch()

    def __call__(self, value: int | None) -> int | None:
        return None if value is None else value * self.factor


def test_a_model_is_loaded_once_per_worker(kafka: Kafka, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 2), kafka.topic("out", 2)
    (loads := tmp_path / "loads").mkdir()
    here = tr.Pipeline("model", tr.KafkaSource(source, "a long"), doubling("udf", Model(2, loads)), tr.KafkaSink(sink))
    conf = {"spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "checkpoint_every": "1s", "conf": conf}
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, **options) as running:
        assert len(list(loads.iterdir())) >= 2, "no record waits for a worker: both had loaded it before start returned"
        wait_until(lambda: len(running.query.recentProgress) >= 4, 60, "four checkpoints")
        kafka.send_to_every_partition(source, [{"a": number} for number in range(20)])
        kafka.receive_count(sink, 20)
        running.stop()
    workers = [mark.name.partition("-")[0] for mark in loads.iterdir()]
    assert 0 < len(workers) == len(set(workers))


def test_costs_are_reported_while_functions_run(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    def twice(value: int) -> int:
        return 2 * value

    source, sink, name = kafka.topic("in", 2), kafka.topic("out", 2), f"costs-{secrets.token_hex(4)}"
    here = tr.Pipeline(name, tr.KafkaSource(source, "a long"), doubling("udf", twice), tr.KafkaSink(sink))
    metrics = of_sparks_env(spark.sparkContext, "metricsSystem")
    where: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "checkpoint": tmp_path / "checkpoint"}
    with tr.start(here, **where) as running:
        kafka.send_to_every_partition(source, [{"a": number} for number in range(40)])
        kafka.receive_count(sink, 40)
        wait_until(
            lambda: [cost.rows for cost in running.python_costs().values()] == [40], 30, "a heartbeat of the tasks"
        )
        shown = metrics.getSourcesByName(f"tailrace.{name}.python").head().metricRegistry().getGauges()
        assert {str(each): shown[each].getValue() for each in shown}["twice.rows"] == 40
        summary = running.stop()
    assert [cost.rows for cost in summary.python.values()] == [40], "no task is counted twice"
    assert metrics.getSourcesByName(f"tailrace.{name}.python").isEmpty()


def test_functions_in_every_place(spark: SparkSession, tmp_path: Path) -> None:
    module = tmp_path / f"beside_{secrets.token_hex(4)}.py"
    module.write_text("def plus(value):\n    return value + 1000\n")
    spark.sparkContext.addPyFile(str(module))
    added = spark.sparkContext.broadcast({"add": 7})
    offset = 3

    def shipped(value: int) -> int:
        return int(__import__(module.stem).plus(value))

    def places(events: DataFrame) -> DataFrame:
        plain = F.udf(lambda value: value + offset, "long", useArrow=False)
        arrow = F.udf(lambda value: value + added.value["add"], "long", useArrow=True)
        named = F.udf(lambda value, times=2: value * times, "long", useArrow=False)
        constant = F.udf(lambda: 42, "long", useArrow=True)
        even = F.udf(lambda value: value % 2 == 0, "boolean", useArrow=False)

        @F.pandas_udf("long")
        def vectorised(value: pd.Series, other: pd.Series) -> pd.Series:
            return value + other

        return events.where(even("a")).select(
            "a",
            plain("a").alias("closure"),
            arrow("a").alias("broadcast"),
            plain(plain("a")).alias("chained"),
            vectorised(plain("a") + 1, F.upper(F.lit("x")).isNotNull().cast("long")).alias("mixed"),
            named("a", times=F.lit(5)).alias("named"),
            constant().alias("constant"),
            F.udf(Model(11), "long", useArrow=False)("a").alias("model"),
            F.udf(shipped, "long", useArrow=False)("a").alias("shipped"),
        )

    output = require_equal_modes(pipeline(places), [{"a": number} for number in range(30)])
    row = next(row for row in output.rows if row["a"] == 4)
    assert row == {
        "a": 4,
        "closure": 7,
        "broadcast": 11,
        "chained": 10,
        "mixed": 9,
        "named": 20,
        "constant": 42,
        "model": 44,
        "shipped": 1004,
    }


def test_functions_before_and_after_a_shuffle() -> None:
    def totals(events: DataFrame) -> DataFrame:
        key = F.udf(lambda value: f"k{value % 3}", "string", useArrow=False)

        @F.pandas_udf("double")
        def rooted(total: pd.Series) -> pd.Series:
            return total.astype("float64") ** 0.5

        summed = events.groupBy(key("a").alias("key")).agg(F.sum("a").alias("total"))
        return summed.select("key", rooted("total").alias("root"))

    output = require_equal_modes(pipeline(totals), [{"a": number} for number in range(60)], by=["key"])
    assert output.last("key")["k0"]["root"] == sum(range(0, 60, 3)) ** 0.5


def test_functions_on_the_results_of_an_aggregate() -> None:
    def totals(events: DataFrame) -> DataFrame:
        key = F.udf(lambda value: f"k{value % 3}", "string", useArrow=False)
        shout = F.udf(lambda text: text.upper(), "string", useArrow=True)
        more = F.udf(lambda value: value + 1, "long", useArrow=False)
        return events.groupBy(key("a").alias("key")).agg(
            shout(key("a")).alias("loud"), more(F.sum(more("a"))).alias("total"), F.max(more("a")).alias("most")
        )

    output = require_equal_modes(pipeline(totals), [{"a": number} for number in range(30)], by=["key"])
    assert output.last("key")["k1"] == {"key": "k1", "loud": "K1", "total": 156, "most": 29}


def test_functions_on_whole_rows_see_only_the_users_columns() -> None:
    def seen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            assert batch.schema.names == ["key", "count"]
            yield batch

    def seen_frames(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            assert list(frame.columns) == ["a"]
            yield frame

    def counts(events: DataFrame) -> DataFrame:
        counted = events.groupBy((F.col("a") % 3).alias("key")).count()
        return counted.mapInArrow(seen, "key long, count long").where("count > 1")

    sent = [{"a": number} for number in range(12)]
    assert require_equal_modes(pipeline(counts), sent, by=["key"]).last("key")[0] == {"key": 0, "count": 4}
    behind = pipeline(lambda rows: rows.mapInPandas(seen_frames, "a long", barrier=True), python_errors="dead-letter")
    assert len(run(behind, sent, "microbatch").rows) == len(sent)


def test_a_function_made_before_any_session_and_one_made_after_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    thrice = lambda value: None if value is None else value * 3  # noqa: E731 - with hints it would be of a fixed kind

    # PySpark chooses between pickled rows and Arrow when a function is created, by the active session.
    with monkeypatch.context() as before:
        before.setattr(SparkSession, "_instantiatedSession", None)
        early = F.udf(thrice, "long")
    late = F.udf(thrice, "long")
    assert early.evalType != late.evalType
    output = require_equal_modes(
        pipeline(lambda events: events.select("a", early("a").alias("early"), late("a").alias("late"))),
        [{"a": 1}, {"a": None}, {}, {"a": -5}],
    )
    assert all(row.get("early") == row.get("late") for row in output.rows)


@pytest.mark.parametrize("kind", KINDS if SOAK else ["udf", "pandas", "map-arrow"])
def test_order_within_a_partition_is_kept(kafka: Kafka, kind: str, tmp_path: Path) -> None:
    source, sink = kafka.topic("in", 1), kafka.topic("out", 1)
    here = tr.Pipeline(
        f"order-{kind}", tr.KafkaSource(source, "a long", starting="earliest"), doubling(kind, same), tr.KafkaSink(sink)
    )
    with tr.start(here, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "checkpoint") as running:
        for begin in range(0, 3000, 500):
            kafka.send(source, [{"a": number} for number in range(begin, begin + 500)])
        written = kafka.receive_count(sink, 3000)
        assert [row["a"] for _, row in written] == list(range(3000))
        summary = running.stop()
    (cost,) = summary.python.values()
    assert cost.calls > 0
    assert cost.failed == cost.replaced == 0
    if kind not in MAP_KINDS:  # their last rows, which may be all, are not completed
        assert cost.rows >= max(3000, cost.calls)
        assert cost.most_rows > 1
        assert 0 < cost.python_ms * cost.rows <= cost.trip_ms * cost.calls
    report = tr.check(here, bootstrap_servers=kafka.bootstrap_servers, checkpoint=tmp_path / "checkpoint")
    assert [last["rows"] for last in report.python.values()] == [cost.rows], "of the last run"


def test_a_function_that_takes_several_batches_before_its_first_output() -> None:
    def gathering(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        held: list[pd.Series] = []
        for values in batches:
            held.append(values)
            if len(held) == 2:
                yield from held
                held = []
        yield from held

    here = pipeline(lambda events: events.select("a", F.pandas_udf(gathering, "long")("a").alias("b")))
    output = run(here, [{"a": number} for number in range(500)], "realtime")
    assert sorted((row["a"], row["b"]) for row in output.rows) == [(number, number) for number in range(500)]


def test_a_file_whose_name_another_module_has_runs_in_workers(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, beside = (f"{name}_{secrets.token_hex(3)}" for name in ("taken", "beside"))
    monkeypatch.setitem(sys.modules, taken, ModuleType(taken))
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{beside}.py").write_text("def added(number):\n    return number + 1\n")
    (tmp_path / f"{taken}.py").write_text(
        f"import {beside}\n"
        "import tailrace as tr\n"
        "from pyspark.sql import functions as F\n"
        "OFFSET = 10\n"
        "@F.udf('long')\n"
        "def raised(number):\n"
        f"    return {beside}.added(number) + OFFSET\n"
        f"pipeline = tr.Pipeline('{taken}', tr.KafkaSource('{taken}-in', 'id long'),\n"
        f"    lambda rows: rows.select(raised('id').alias('id')), tr.KafkaSink('{taken}-out'))\n"
    )
    assert run(load_pipeline(str(tmp_path / f"{taken}.py")), [{"id": 1}], mode).rows == [{"id": 12}]
