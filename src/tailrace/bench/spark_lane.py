"""The process of a Spark lane: one query in a Spark of its own, until SIGTERM.

With Tailrace it is an ordinary pipeline. On stock Spark it is what a user would write without Tailrace: no setting of
Tailrace's, no engine, only the connector's jars and what :class:`SparkSettings` names.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.bench.lane import Cell, Command
from tailrace.bench.work import Work
from tailrace.bench.works import SCHEMA, transform_of
from tailrace.bench.works.python_function import KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tailrace.pipeline import Pipeline

_POLL_S = 2.0
"""Seldom: asking a query for its progress takes from what is measured."""


@dataclass(frozen=True)
class SparkSettings:
    """How a Spark lane runs.

    Attributes:
        tailrace: Whether it is a pipeline of Tailrace's.
        trigger: ``realtime``, ``microbatch`` or ``continuous``.
        conf: Settings of the context.
        checkpoint_every_s: How often real time saves its progress, where the lane needs a time of its own.
        pipeline: The user's pipeline that runs instead of the work.
        function: The kind of function that makes the score of the work in Python; an ordinary ``@udf`` by default.
    """

    tailrace: bool
    trigger: str
    conf: Mapping[str, str] = field(default_factory=dict)
    checkpoint_every_s: float | None = None
    pipeline: str | None = None
    function: str = ""


def spark_command(settings: SparkSettings, cell: Cell) -> Command:
    """The process of a lane with these settings."""
    if settings.checkpoint_every_s is not None:
        cell = replace(cell, checkpoint_every_s=settings.checkpoint_every_s)
    told = {"settings": asdict(settings), "cell": {**asdict(cell), "folder": str(cell.folder)}}
    return Command((sys.executable, "-m", "tailrace.bench.spark_lane", json.dumps(told)))


def main() -> None:
    """Run the query that the argument describes."""
    told = json.loads(sys.argv[1])
    cell = Cell(**{**told["cell"], "work": Work(told["cell"]["work"]), "folder": Path(told["cell"]["folder"])})
    settings = SparkSettings(**told["settings"])
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    runs = _tailrace_query if settings.tailrace else _stock_query
    with (
        runs(settings, cell) as (query, raise_if_failed),
        _task_times(query) if settings.tailrace else nullcontext() as times,
    ):
        _follow(query, raise_if_failed, None if settings.trigger == "microbatch" else cell.events, ended, times)


@contextmanager
def _tailrace_query(settings: SparkSettings, cell: Cell) -> Iterator[tuple["StreamingQuery", Callable[[], None]]]:
    from tailrace.pipeline import Mode
    from tailrace.prepare.options import RunOptions
    from tailrace.running.start import start_query
    from tailrace.spark_session import end_session

    pipeline = _users_pipeline(settings.pipeline, cell) if settings.pipeline else _pipeline_of(settings, cell)
    options = RunOptions(
        Mode(settings.trigger),
        bootstrap_servers=cell.bootstrap_servers,
        checkpoint=cell.folder / "checkpoint",
        checkpoint_every=f"{cell.checkpoint_every_s:g}s",
        trigger_every=f"{cell.trigger_every_ms}ms",
        conf={"spark.ui.enabled": "false", **settings.conf},
    )
    try:
        with start_query(pipeline, options) as running:
            yield running.query, running.raise_if_failed
    finally:
        end_session()


def _pipeline_of(settings: SparkSettings, cell: Cell) -> "Pipeline":
    from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline

    return Pipeline(
        name=f"bench-{cell.work}",
        source=KafkaSource(cell.source, SCHEMA, starting="earliest"),
        transform=KINDS[settings.function].transform if settings.function else transform_of(cell.work),
        sink=KafkaSink(cell.sink, key="key"),
        dead_letters=f"{cell.sink}.dead-letters",
    )


def _users_pipeline(spec: str, cell: Cell) -> "Pipeline":
    """The user's pipeline between the topics of this run."""
    from tailrace.prepare.loader import load_pipeline

    given = load_pipeline(spec)
    return replace(
        given,
        source=replace(given.sources[0], topics=cell.source, pattern=None, starting="earliest"),
        sink=replace(given.sink, topic=cell.sink, topic_column=None),
        dead_letters=f"{cell.sink}.dead-letters" if given.malformed == "dead-letter" else None,
    )


@contextmanager
def _stock_query(settings: SparkSettings, cell: Cell) -> Iterator[tuple["StreamingQuery", Callable[[], None]]]:
    spark = _stock_session(settings, cell)
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", cell.bootstrap_servers)
        .option("subscribe", cell.source)
        .option("startingOffsets", "earliest")
        .load()
    )
    events = raw.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') as event").select("event.*")
    result: DataFrame = transform_of(cell.work)(events)
    stateless = cell.work in (Work.STATELESS, Work.PYTHON, Work.JOIN)
    writer = (
        result.selectExpr("key", "to_json(struct(*)) as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", cell.bootstrap_servers)
        .option("topic", cell.sink)
        .option("checkpointLocation", str(cell.folder / "checkpoint"))
        .outputMode("append" if stateless and settings.trigger != "realtime" else "update")
    )
    match settings.trigger:
        case "realtime":
            trigger: Any = writer.trigger  # PySpark's type information does not know the real-time trigger yet
            writer = trigger(realTime=f"{cell.checkpoint_every_s:g} seconds")
        case "continuous":
            writer = writer.trigger(continuous=f"{cell.checkpoint_every_s:g} seconds")
        case _:
            writer = writer.trigger(processingTime=f"{cell.trigger_every_ms} milliseconds")
    query = writer.start()
    try:
        yield query, lambda: _raise_failure(query)
    finally:
        query.stop()
        spark.stop()


def _stock_session(settings: SparkSettings, cell: Cell) -> "SparkSession":
    """Spark as PySpark starts it, with the connector's jars, on loopback."""
    from pyspark.sql import SparkSession

    from tailrace.toolchain import ensure_jars, ensure_java

    java = ensure_java(print)
    jars = ensure_jars(java, ["connector"], print)["connector"]
    os.environ["JAVA_HOME"] = str(java.home)
    # Without it the workers of Python functions run another interpreter, which lacks what they need.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = (
        SparkSession.builder.appName("bench")
        .master(f"local[{2 * cell.partitions}]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", str(cell.partitions))
    )
    for key, value in settings.conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _raise_failure(query: "StreamingQuery") -> None:
    failed = query.exception()
    if failed is not None:
        raise failed


@contextmanager
def _task_times(query: "StreamingQuery") -> Iterator[Callable[[int], dict[str, int] | None]]:
    """Yield a function that says when the tasks of a batch started and ended, as Tailrace's engine saw it."""
    from tailrace.engine import BatchTimes

    watched = BatchTimes(query)

    def of(batch: int) -> dict[str, int] | None:
        found = watched.of(batch)
        return asdict(found) if found is not None else None

    try:
        yield of
    finally:
        watched.close()


def _follow(
    query: "StreamingQuery",
    raise_if_failed: Callable[[], None],
    events: Path | None,
    ended: threading.Event,
    task_times: Callable[[int], dict[str, int] | None] | None,
) -> None:
    """Write down each batch that was completed, where that is seldom, until told to end."""
    noted = -1
    while not ended.wait(_POLL_S):
        if not query.isActive:
            raise_if_failed()
            sys.exit("the query ended by itself")
        for progress in query.recentProgress if events is not None else ():
            told = json.loads(progress.json)
            if told["batchId"] > noted:
                noted = told["batchId"]
                told["tasks"] = task_times(noted) if task_times is not None else None
                _append(events, told)


def _append(events: Path | None, told: dict[str, Any]) -> None:
    if events is not None:
        with events.open("a") as file:
            file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
