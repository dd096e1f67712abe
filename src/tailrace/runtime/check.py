"""Checking a query without starting it: nothing runs, nothing is written, no topic is made."""

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.errors import DefinitionError, KafkaError, TailraceError, ToolchainError
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.sources import source_topics
from tailrace.preflight.finding import Finding
from tailrace.preflight.query import Query
from tailrace.preflight.report import CheckReport
from tailrace.preflight.run_checks import run_checks
from tailrace.runtime.candidate import Candidate, as_finding, facts, saved_in
from tailrace.runtime.failure import translate_failure
from tailrace.runtime.frames import pipeline_frame
from tailrace.runtime.options import DEFAULT_TRIGGER_EVERY, RunOptions, parse_mode
from tailrace.runtime.pipeline_topics import PipelineTopics
from tailrace.runtime.query_session import query_session, spark_for
from tailrace.runtime.source_frame import record_schema


def check(
    what: Pipeline | DataStreamWriter | DataFrame,
    mode: Mode | str = Mode.REALTIME,
    *,
    bootstrap_servers: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: str | None = None,
    trigger_every: str = DEFAULT_TRIGGER_EVERY,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> CheckReport:
    """Find out whether a pipeline, a streaming query or a streaming DataFrame would run, without starting it.

    The arguments are those of :func:`tailrace.start`.

    Returns:
        What was found; ``report.ok`` says whether it would run and process everything.

    Raises:
        ToolchainError: It could not be checked.
    """
    options = RunOptions(
        parse_mode(mode), bootstrap_servers, checkpoint, checkpoint_every, trigger_every, master, dict(conf or {})
    )
    _refuse_connect(what)
    if isinstance(what, Pipeline):
        return check_pipeline(what, options)
    if isinstance(what, DataStreamWriter | DataFrame):
        return check_frame(what, options)
    raise DefinitionError(
        f"a {type(what).__name__} cannot be checked",
        fix="pass a tr.Pipeline, a DataStreamWriter (df.writeStream...) or a streaming DataFrame",
    )


def check_pipeline(
    pipeline: Pipeline, options: RunOptions, announce: Callable[[str], None] | None = None
) -> CheckReport:
    """Check a pipeline."""
    beforehand: list[Finding] = []
    servers = resolve_bootstrap_servers(options.bootstrap_servers)
    topics = PipelineTopics(pipeline, servers)
    partitions = _partitions(topics, beforehand)
    location = Checkpoint(options.checkpoint or default_location(pipeline.name))
    saved = saved_in(location, Owner(pipeline.name, tuple(sorted(topics.named)), pipeline.sink.in_words))
    spark, ours = spark_for(options, partitions, announce)
    own = query_session(spark, options, location, partitions)
    try:
        candidate = _pipeline_candidate(pipeline, own, servers)
        query = facts(candidate, own, options, saved)
    except ToolchainError:
        raise
    except TailraceError as failed:
        beforehand.append(as_finding(failed))
        query = Query(pipeline.name, options.mode, options.interval_ms, capacity=engine.capacity(own), saved=saved)
    except PySparkException as refused:
        beforehand.append(as_finding(translate_failure(pipeline.name, str(refused))))
        query = Query(pipeline.name, options.mode, options.interval_ms, capacity=engine.capacity(own), saved=saved)
    return run_checks(with_enough_slots(query) if ours else query, beforehand)


def check_frame(what: DataStreamWriter | DataFrame, options: RunOptions) -> CheckReport:
    """Check any streaming query, or what may become one."""
    writer = what if isinstance(what, DataStreamWriter) else None
    frame = engine.writer_frame(what) if isinstance(what, DataStreamWriter) else what
    if not frame.isStreaming:
        raise DefinitionError("this DataFrame is not a stream", fix="make it with spark.readStream")
    told = engine.writer_settings(writer) if writer is not None else None
    name = (told.options.get("queryname") if told is not None else None) or "query"
    location = options.checkpoint or (told.options.get("checkpointlocation") if told is not None else None)
    beforehand: list[Finding] = []
    partitions = _frame_partitions(frame, beforehand)
    checkpoint = Checkpoint(location or default_location(name))
    saved = saved_in(checkpoint, Owner(name, (), told.options.get("topic", told.format))) if told is not None else None
    own = query_session(frame.sparkSession, options, checkpoint, partitions)
    moved = engine.writer_on(writer, own) if writer is not None else None
    candidate = Candidate(name, engine.writer_frame(moved) if moved is not None else engine.frame_on(frame, own), moved)
    return run_checks(facts(candidate, own, options, saved), beforehand)


def with_enough_slots(query: Query) -> Query:
    """The query in a Spark of Tailrace's own, which gets as many slots as the query needs."""
    import dataclasses

    if query.slots is None or query.slots.required <= query.capacity.free:
        return query
    enough = engine.Capacity(query.slots.required + query.capacity.taken, query.capacity.taken)
    return dataclasses.replace(query, capacity=enough, master=f"local[{enough.slots}]")


def _pipeline_candidate(pipeline: Pipeline, own: SparkSession, servers: str) -> Candidate:
    for source in pipeline.sources:
        record_schema(source)
    with engine.recorded_lines(own):
        frame = pipeline_frame(pipeline, own, servers)
    writer = (
        frame.rows.writeStream.format("kafka").options(**pipeline.sink.options).options(**pipeline.sink.destination)
    )
    writer = writer.option("kafka.bootstrap.servers", servers).outputMode("update")
    return Candidate(pipeline.name, frame.rows, writer, frame.counts, frame.lost)


def _partitions(topics: PipelineTopics, beforehand: list[Finding]) -> int | None:
    """The partitions of all sources; what the broker refuses is a finding."""
    try:
        topics.require_sink()
        sources = topics.sources()
    except KafkaError as refused:
        beforehand.append(as_finding(refused))
        return None
    except DefinitionError as refused:
        beforehand.append(as_finding(refused))
        return None
    return sum(sum(counts.values()) for counts in sources) if sources is not None else None


def _frame_partitions(frame: DataFrame, beforehand: list[Finding]) -> int | None:
    try:
        reads = [source_topics(read, frame.sparkSession) for read in engine.stream_reads(frame)]
    except KafkaError as refused:
        beforehand.append(as_finding(refused))
        return None
    known = [read for read in reads if read is not None]
    return sum(read.total for read in known) if known and None not in reads else None


def _refuse_connect(what: object) -> None:
    if type(what).__module__.startswith("pyspark.sql.connect"):
        raise DefinitionError(
            "a query of a Spark Connect session cannot be checked or started here",
            why="its plan is made on a server that Tailrace's engine is not part of",
            fix="make the session with tr.session(), which is a classic one",
        )
