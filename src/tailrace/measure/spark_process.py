"""The process of a Spark lane: one query in its own Spark, until SIGTERM.

With Tailrace it is an ordinary pipeline. On stock Spark it is what a user writes without Tailrace: none of Tailrace's
settings, no engine, only the connector's jars and what :class:`SparkSettings` names.
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

from tailrace.measure.lane import Cell, Command, Trigger
from tailrace.measure.python_work import FUNCTIONS
from tailrace.measure.works import SCHEMA, Work, transform_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from tailrace.pipeline import Pipeline
    from tailrace.prepare.options import DeliveryName, RunOptions

_POLL_S = 2.0
"""Not often, because reading a query's progress takes CPU from the measurement."""


@dataclass(frozen=True)
class SparkSettings:
    """How a Spark lane runs.

    Attributes:
        tailrace: Whether Tailrace runs the query, or stock Spark.
        trigger: The trigger of the query.
        conf: Settings of the context.
        checkpoint_every_s: The checkpoint interval in real time, if the lane needs its own.
        pipeline: The user's pipeline that runs instead of the work.
        tasks: The most tasks that read the source in real time, if its partitions share tasks.
        function: The kind of function that computes the score of the work ``python``; an ordinary ``@udf`` by default.
        delivery: The delivery; None for the pipeline's own default.
        spark_sink: Whether the rows of the pipeline are written with Spark's own sink, by a writer of the user's.
    """

    tailrace: bool
    trigger: Trigger
    conf: Mapping[str, str] = field(default_factory=dict)
    checkpoint_every_s: float | None = None
    pipeline: str | None = None
    function: str = ""
    tasks: int | None = None
    delivery: "DeliveryName | None" = None
    spark_sink: bool = False


def spark_command(settings: SparkSettings, cell: Cell) -> Command:
    """Return the process of a lane with these settings."""
    if settings.checkpoint_every_s is not None:
        cell = replace(cell, checkpoint_every_s=settings.checkpoint_every_s)
    message = {"settings": asdict(settings), "cell": {**asdict(cell), "folder": str(cell.folder)}}
    return Command((sys.executable, "-m", "tailrace.measure.spark_process", json.dumps(message)))


def main() -> None:
    """Run the query that the argument describes."""
    message = json.loads(sys.argv[1])
    given = message["cell"]
    cell = Cell(**{**given, "work": Work(given["work"]), "folder": Path(given["folder"])})
    settings = SparkSettings(**{**message["settings"], "trigger": Trigger(message["settings"]["trigger"])})
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    runs = _tailrace_query if settings.tailrace else _stock_query
    with (
        runs(settings, cell) as (query, raise_if_failed),
        _task_times(query) if settings.tailrace else nullcontext() as times,
    ):
        _follow(query, raise_if_failed, None if settings.trigger is Trigger.MICROBATCH else cell.events, ended, times)


@contextmanager
def _tailrace_query(settings: SparkSettings, cell: Cell) -> Iterator[tuple["StreamingQuery", Callable[[], None]]]:
    from tailrace.pipeline import Mode
    from tailrace.prepare.options import RunOptions
    from tailrace.running.start import start_query
    from tailrace.spark_session import end_session

    pipeline = _users_pipeline(settings.pipeline, cell) if settings.pipeline else _pipeline_of(settings, cell)
    options = RunOptions(
        Mode(str(settings.trigger)),
        bootstrap_servers=cell.bootstrap_servers,
        checkpoint=cell.folder / "checkpoint",
        checkpoint_every=f"{cell.checkpoint_every_s:g}s",
        trigger_every=f"{cell.trigger_every_ms}ms",
        tasks=settings.tasks,
        delivery=settings.delivery,
        conf={"spark.ui.enabled": "false", **settings.conf},
    )
    try:
        what = _writer_of(pipeline, options) if settings.spark_sink else pipeline
        with start_query(what, options) as running:
            yield running.query, running.raise_if_failed
    finally:
        end_session()


def _writer_of(pipeline: "Pipeline", options: "RunOptions") -> "DataStreamWriter":
    """Return a writer of the rows that the pipeline would write."""
    from tailrace.frames.pipeline import pipeline_frame
    from tailrace.prepare.endpoint import SERVERS
    from tailrace.spark_session import session

    servers = str(options.bootstrap_servers)
    frame = pipeline_frame(pipeline, session(conf=options.conf), servers, carries_python=False)
    writer = frame.rows.writeStream.queryName(pipeline.name).format("kafka").outputMode("update")
    return writer.option(SERVERS, servers).options(**pipeline.sink.destination)


def _pipeline_of(settings: SparkSettings, cell: Cell) -> "Pipeline":
    from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline

    return Pipeline(
        name=f"bench-{cell.work}",
        source=KafkaSource(cell.source, SCHEMA, starting="earliest"),
        transform=FUNCTIONS[settings.function].transform if settings.function else transform_of(cell.work),
        sink=KafkaSink(cell.sink, key="key"),
        dead_letters=f"{cell.sink}.dead-letters",
    )


def _users_pipeline(spec: str, cell: Cell) -> "Pipeline":
    """Return the user's pipeline with the topics of this run."""
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
    writer = (
        result.selectExpr("key", "to_json(struct(*)) as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", cell.bootstrap_servers)
        .option("topic", cell.sink)
        .option("checkpointLocation", str(cell.folder / "checkpoint"))
        .outputMode("update" if cell.work.is_stateful or settings.trigger is Trigger.REALTIME else "append")
    )
    match settings.trigger:
        case Trigger.REALTIME:
            trigger: Any = writer.trigger  # PySpark's types do not have the real-time trigger yet
            writer = trigger(realTime=f"{cell.checkpoint_every_s:g} seconds")
        case Trigger.CONTINUOUS:
            writer = writer.trigger(continuous=f"{cell.checkpoint_every_s:g} seconds")
        case Trigger.MICROBATCH:
            writer = writer.trigger(processingTime=f"{cell.trigger_every_ms} milliseconds")
    query = writer.start()
    try:
        yield query, lambda: _raise_failure(query)
    finally:
        query.stop()
        spark.stop()


def _stock_session(settings: SparkSettings, cell: Cell) -> "SparkSession":
    """Start Spark as PySpark does, with the connector's jars, on loopback."""
    from pyspark.sql import SparkSession

    from tailrace.toolchain import ensure_jars, ensure_java

    java = ensure_java(print)
    jars = ensure_jars(java, ["connector"], print)["connector"]
    os.environ["JAVA_HOME"] = str(java.home)
    # Otherwise the workers of Python functions run another interpreter, without the packages that they need.
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
    """Yield a function that returns when the tasks of a batch started and ended, by Tailrace's engine."""
    from tailrace.engine import BatchTimes

    watched = BatchTimes(query)

    def of(batch: int) -> dict[str, int] | None:
        times = watched.of(batch)
        return asdict(times) if times is not None else None

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
    """Write each completed batch to ``events``, if given, until ``ended`` is set."""
    last = -1
    while not ended.wait(_POLL_S):
        if not query.isActive:
            raise_if_failed()
            sys.exit("the query ended by itself")
        if events is None:
            continue
        for progress in query.recentProgress:
            batch = json.loads(progress.json)
            if batch["batchId"] > last:
                last = batch["batchId"]
                batch["tasks"] = task_times(last) if task_times is not None else None
                with events.open("a") as file:
                    file.write(json.dumps(batch) + "\n")


if __name__ == "__main__":
    main()
