"""Starting a query, checked first. The only caller of ``DataStreamWriter.start``."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.errors import (
    DefinitionError,
    OptionRefused,
    QueryFailed,
    QueryRefused,
    SettingRefused,
    TailraceError,
    ToolchainError,
)
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.slots import Slots, count_slots, require_slots
from tailrace.plan.sources import source_topics
from tailrace.runtime.failure import translate_failure
from tailrace.runtime.frames import pipeline_frame
from tailrace.runtime.options import DEFAULT_TRIGGER_EVERY, RunOptions, parse_mode
from tailrace.runtime.pipeline_topics import PipelineTopics, from_the_beginning
from tailrace.runtime.running import RunningQuery
from tailrace.runtime.source_frame import record_schema
from tailrace.spark_session import has_context, is_local, require_engine, session, user_settings
from tailrace.tuning import SHUFFLE_PARTITIONS, query_settings, refuse_unworkable

_CONFIRM_TIMEOUT_S = 60.0


def start(  # noqa: PLR0913 - one argument per choice of a user's
    what: Pipeline | DataStreamWriter,
    mode: Mode | str = Mode.REALTIME,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: str | None = None,
    trigger_every: str = DEFAULT_TRIGGER_EVERY,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    once: bool = False,
) -> RunningQuery:
    """Check a pipeline, or any streaming query, and start it.

    Args:
        what: A :class:`Pipeline`, or a ``DataStreamWriter`` (``df.writeStream.format("kafka")...``).
        mode: ``"realtime"`` or ``"microbatch"``.
        bootstrap_servers: The brokers of a pipeline; by default ``TAILRACE_BOOTSTRAP_SERVERS``, or the running
            development broker.
        checkpoint: The checkpoint folder; ``.tailrace/checkpoints/<name>`` by default.
        checkpoint_every: Real time: how often progress is saved, ``"5m"`` by default and 5 s at least. Records never
            wait for it.
        trigger_every: Micro-batch: how often a batch starts.
        master: Where Spark runs, if no Spark is running yet; by default this machine, with the slots needed.
        conf: Spark settings; they win over Tailrace's own.
        once: Process what is in a pipeline's topics now, from their beginning unless a checkpoint or ``starting`` says
            otherwise, and end. In real time the end is found by ``wait()``, so call it.

    Returns:
        The running query. Stop it with ``stop()``, or wait for it with ``wait()``.

    Raises:
        TailraceError: It cannot run; the error says why and what to do.
    """
    options = RunOptions(
        parse_mode(mode),
        bootstrap_servers,
        checkpoint,
        checkpoint_every,
        trigger_every,
        master,
        dict(conf or {}),
        once,
    )
    if isinstance(what, Pipeline):
        return start_pipeline(what, options)
    if isinstance(what, DataStreamWriter):
        if bootstrap_servers is not None:
            raise OptionRefused(
                "bootstrap_servers= is for a tr.Pipeline; a DataStreamWriter has its brokers already",
                fix='.option("kafka.bootstrap.servers", ...) on its reader and on the writer',
            )
        return start_writer(what, options)
    raise DefinitionError(
        f"a {type(what).__name__} cannot be started",
        fix="pass a tr.Pipeline or a DataStreamWriter (df.writeStream...)",
    )


def start_pipeline(
    pipeline: Pipeline,
    options: RunOptions,
    announce: Callable[[str], None] | None = None,
    *,
    private: bool = False,
) -> RunningQuery:
    """Check and start a pipeline.

    Args:
        pipeline: The pipeline.
        options: How it is to run.
        announce: Told of what takes time, and of what was made.
        private: Whether the topics are a test's own: nobody else writes to them, and records that fit no schema are
            meant to be there.
    """
    servers = resolve_bootstrap_servers(options.bootstrap_servers)
    if options.once:
        pipeline = from_the_beginning(pipeline)
    topics = PipelineTopics(pipeline, servers)
    topics.require_sink()
    sources = topics.sources()
    checkpoint = Checkpoint(options.checkpoint or default_location(pipeline.name))
    names = sorted({name for counts in sources or () for name in counts} or set(topics.named))
    checkpoint.acquire(Owner(pipeline.name, tuple(names), pipeline.sink.in_words))
    try:
        partitions = sum(sum(counts.values()) for counts in sources) if sources is not None else None
        spark, ours = _spark_for(options, partitions, announce)
        if sources is None:
            sources = topics.sources_by(spark)
            partitions = sum(sum(counts.values()) for counts in sources)
        schemas = [record_schema(source) for source in pipeline.sources]  # Spark's parser reads them
        topics.require_dead_letters(spark, announce)
        if not private and checkpoint.is_fresh():
            # Later it is too late for that: records that do not fit go where the pipeline says.
            topics.require_fitting_records(sources, schemas)
        bound = topics.bound(sources, alone=private) if options.once and options.mode is Mode.REALTIME else None

        def build(on: SparkSession) -> _Query:
            frame = pipeline_frame(pipeline, on, servers)
            writer = frame.rows.writeStream.format("kafka").options(**pipeline.sink.options)
            writer = writer.options(**pipeline.sink.destination)
            writer = writer.option("kafka.bootstrap.servers", servers).outputMode("update")
            return _Query(writer, frame.counts, frame.lost)

        running = _start(build, spark, pipeline.name, options, checkpoint, partitions, rebuild=ours)
    except BaseException:
        checkpoint.release()
        raise
    if bound is not None:
        running.end_at(bound)
    return running


def start_writer(writer: DataStreamWriter, options: RunOptions) -> RunningQuery:
    """Check and start any streaming query, on a session of its own."""
    if options.once and options.mode is Mode.REALTIME:
        raise OptionRefused(
            "a DataStreamWriter cannot be run once in real time",
            why="where it has to end is known only of a tr.Pipeline",
            fix='mode="microbatch", or write it as a tr.Pipeline',
        )
    told = engine.writer_settings(writer)
    name = told.options.get("queryname") or "query"
    location = options.checkpoint or told.options.get("checkpointlocation")
    if location is None and "queryname" not in told.options:
        raise DefinitionError(
            "the query has neither a name nor a checkpoint",
            why="its progress is saved in a folder that is found again by one of them",
            fix='.queryName("payments") or .option("checkpointLocation", DIR) on the writer',
        )
    frame = engine.writer_frame(writer)
    reads = [source_topics(read, frame.sparkSession) for read in engine.stream_reads(frame)]
    known = [read for read in reads if read is not None]
    topics = tuple(sorted({topic for read in known for topic in read.partitions}))
    partitions = sum(read.total for read in known) if known and None not in reads else None
    checkpoint = Checkpoint(location or default_location(name))
    checkpoint.acquire(Owner(name, topics, told.options.get("topic", told.format)))
    try:
        spark = frame.sparkSession

        def build(on: SparkSession) -> _Query:
            moved = engine.writer_on(writer, on)
            return _Query(_in_update_mode(moved, told.output_mode, name, options.mode))

        return _start(build, spark, name, options, checkpoint, partitions, rebuild=False)
    except BaseException:
        checkpoint.release()
        raise


@dataclass(frozen=True)
class _Query:
    """A query that is ready to start."""

    writer: DataStreamWriter
    counts: tuple[engine.RecordCounts, ...] = ()
    lost_lineage: str = ""


def _start(
    build: Callable[[SparkSession], _Query],
    spark: SparkSession,
    name: str,
    options: RunOptions,
    checkpoint: Checkpoint,
    partitions: int | None,
    *,
    rebuild: bool,
) -> RunningQuery:
    """Plan the query on a session of its own, check what it needs, start it and see that it runs."""
    realtime = options.mode is Mode.REALTIME
    if realtime:
        checkpoint.require_format_2()
    own = _query_session(spark, options, checkpoint, partitions)
    try:
        built = build(own)
    except PySparkException as refused:
        raise translate_failure(name, str(refused)) from refused
    slots = _slots(engine.writer_frame(built.writer))
    if realtime:
        refuse_unworkable(engine.explicit_settings(own), shuffles=len(slots.stages) - 1 if slots else 0)
        if slots is not None and slots.required > engine.task_slots(spark) and rebuild:
            spark = _rebuilt(spark, slots)
            return _start(build, spark, name, options, checkpoint, partitions, rebuild=False)
        if slots is not None:
            require_slots(slots, engine.task_slots(spark))
    query = _begin(built, name, options, checkpoint)
    running = RunningQuery(query, name=name, mode=options.mode, checkpoint=checkpoint, slots=slots, counts=built.counts)
    running.lost_lineage = built.lost_lineage
    if realtime and options.once:
        # Before anything else is waited for: it must see the batch in which the run is to end begin.
        running.watch = engine.BatchWatch(query)
    try:
        _confirm(running)
    except BaseException:
        # Whatever it was, the caller gets no handle: a query left running would go on without its checkpoint's lock.
        with contextlib.suppress(TailraceError):
            running.stop()
        raise
    return running


def _begin(built: _Query, name: str, options: RunOptions, checkpoint: Checkpoint) -> StreamingQuery:
    """Hand the query to Spark."""
    realtime = options.mode is Mode.REALTIME
    writer = engine.with_trigger(built.writer, realtime=realtime, interval_ms=options.interval_ms, once=options.once)
    if realtime and options.once:
        # A bounded run ends right after a checkpoint, which must be on disk by then.
        writer = writer.option("asyncProgressTrackingEnabled", "false")
    for counts in built.counts:
        counts.watch()
    try:
        return writer.queryName(name).option("checkpointLocation", checkpoint.location).start()
    except PySparkException as refused:
        for counts in built.counts:
            counts.close()
        raise translate_failure(name, str(refused)) from refused


def _spark_for(
    options: RunOptions,
    partitions: int | None,
    announce: Callable[[str], None] | None,
) -> tuple[SparkSession, bool]:
    """The session to start from, and whether it may be rebuilt with more slots.

    A session that the program holds already is never rebuilt: DataFrames made from it would die with it.
    """
    if has_context():
        return session(master=options.master), False
    if options.master is not None or "spark.master" in user_settings(options.conf):
        return session(master=options.master, conf=options.conf, announce=announce), False
    # Most pipelines have one shuffle at most: a guess that is right for them spares starting twice.
    guess = max((partitions or 0) + _asked_partitions(options, partitions or 0), 4)
    return session(conf={"spark.master": f"local[{guess}]"} | dict(options.conf), announce=announce), True


def _asked_partitions(options: RunOptions, otherwise: int) -> int:
    asked = options.conf.get(SHUFFLE_PARTITIONS, "")
    return int(asked) if asked.isdigit() else otherwise


def _rebuilt(spark: SparkSession, slots: Slots) -> SparkSession:
    """The same session with as many slots as the query needs."""
    kept = {key: value for key, value in spark.sparkContext.getConf().getAll() if _is_kept(key)}
    spark.stop()
    return session(conf=kept | {"spark.master": f"local[{slots.required}]"})


def _is_kept(key: str) -> bool:
    """Whether a setting of a context was chosen, rather than made up by Spark for that one context."""
    return not key.startswith(("spark.app.id", "spark.app.start", "spark.app.submit", "spark.driver.port"))


def _query_session(
    spark: SparkSession, options: RunOptions, checkpoint: Checkpoint, source_partitions: int | None
) -> SparkSession:
    """A session for this one query: the user's settings, and the soft ones wherever they set nothing."""
    if not engine.has_kafka_connector(spark):
        raise ToolchainError(
            "the running Spark has no Kafka connector",
            why="its session was made without one, and jars cannot be added once it runs",
            fix="make the session with tr.session()",
        )
    require_engine(spark)
    own = engine.clone_session(spark)
    for key, value in options.conf.items():
        _choose(own, key, value)
    chosen = engine.explicit_settings(own)
    local = checkpoint.path is not None and is_local(chosen)
    soft = query_settings(realtime=options.mode is Mode.REALTIME, local=local)
    shuffle_partitions = _shuffle_partitions(options, chosen, checkpoint) or source_partitions
    if shuffle_partitions is not None:
        own.conf.set(SHUFFLE_PARTITIONS, str(shuffle_partitions))
    for key, value in soft.items():
        if key not in chosen:
            own.conf.set(key, value)
    return own


def _choose(own: SparkSession, key: str, value: str) -> None:
    """Give the query a setting of the user's, or say why it comes too late."""
    # Jars are the user's and ours together, so their text differs from what was asked for.
    if key == "spark.jars" or own.conf.get(key, None) == value:
        return
    try:
        own.conf.set(key, value)
    except PySparkException as fixed:
        raise SettingRefused(
            f"{key} cannot be changed any more",
            why="a Spark context is running, and this setting is fixed when it starts",
            fix="give it to tr.session(conf=...) before anything else starts Spark",
        ) from fixed


def _shuffle_partitions(options: RunOptions, chosen: Mapping[str, str], checkpoint: Checkpoint) -> int | None:
    """How many tasks read each shuffle: what the checkpoint pins, else what the user set, if either did."""
    pinned = checkpoint.pinned_shuffle_partitions()
    asked = options.conf.get(SHUFFLE_PARTITIONS)
    if asked is not None and not (asked.isdigit() and int(asked) > 0):
        raise SettingRefused(f"{SHUFFLE_PARTITIONS}={asked} is no number of partitions", fix="--shuffle-partitions 2")
    if pinned is not None and asked is not None and int(asked) != pinned:
        raise SettingRefused(
            f"{SHUFFLE_PARTITIONS}={asked}, but the checkpoint {checkpoint.location} was made with {pinned}",
            why="the state in it is divided into that many parts for good",
            fix=f"--shuffle-partitions {pinned}, or a fresh checkpoint: --checkpoint DIR",
        )
    if pinned is not None:
        # Spark itself restores what the checkpoint says; slots must be counted with that number.
        return pinned
    value = chosen.get(SHUFFLE_PARTITIONS)
    return int(value) if value is not None else None


def _slots(frame: DataFrame) -> Slots | None:
    """The tasks of the query, or None where a source cannot be asked for its partitions."""
    reads = [source_topics(read, frame.sparkSession) for read in engine.stream_reads(frame)]
    if not reads or None in reads:
        return None
    return count_slots(engine.streaming_plan(frame), sum(read.total for read in reads if read is not None))


def _in_update_mode(writer: DataStreamWriter, given: str, name: str, mode: Mode) -> DataStreamWriter:
    """A writer in update mode where real time needs it and it changes nothing; refuse where it would."""
    if mode is not Mode.REALTIME or given.lower() == "update":
        return writer
    stateful = any("StateStore" in node.name for node in engine.streaming_plan(engine.writer_frame(writer)).walk())
    if given.lower() == "complete" or stateful:
        raise QueryRefused(
            f"query {name!r} is in {given.lower()} mode; real time has only update mode",
            why="update mode writes each changed result at once instead of final or complete ones",
            fix='.outputMode("update") on the writer',
        )
    return writer.outputMode("update")


def _confirm(running: RunningQuery) -> None:
    """See that a real-time query really flows: Spark refuses much of what it refuses only after the start."""
    if running.mode is not Mode.REALTIME:
        return
    deadline = time.monotonic() + _CONFIRM_TIMEOUT_S
    while not engine.has_running_tasks(running.query):
        if not running.is_active:
            running.raise_if_failed()
            raise QueryFailed(f"query {running.name!r} ended as soon as it was started")
        if time.monotonic() > deadline:
            raise QueryFailed(
                f"query {running.name!r} did not start its tasks within {_CONFIRM_TIMEOUT_S:.0f} s",
                fix="see whether other queries hold Spark's task slots",
            )
        time.sleep(0.05)
    if not engine.runs_in_real_time(running.query):
        raise QueryRefused(
            f"query {running.name!r} was started in real time, but Spark does not run it so",
            why="its running plan has no real-time scan",
        )
