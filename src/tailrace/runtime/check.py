"""Checking a query without starting it: nothing runs, nothing is written, no topic is made."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.errors import BrokerUnreachable, DefinitionError, KafkaError, TailraceError, ToolchainError
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.sources import QueryTopics, query_topics
from tailrace.preflight.finding import Finding
from tailrace.preflight.query import Query
from tailrace.preflight.report import CheckReport
from tailrace.preflight.run_checks import run_checks
from tailrace.runtime.candidate import (
    Candidate,
    as_finding,
    facts,
    pipeline_candidate,
    require_sink_topic,
    saved_in,
    writer_candidate,
)
from tailrace.runtime.options import DEFAULT_TRIGGER_EVERY, RunOptions, run_options
from tailrace.runtime.pipeline_topics import PipelineTopics
from tailrace.runtime.query_session import query_session, refuse_connect, spark_for


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
    options = run_options(
        mode,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        trigger_every=trigger_every,
        master=master,
        conf=dict(conf or {}),
    )
    refuse_connect(what)
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
        candidate = pipeline_candidate(pipeline, own, servers)
        query = facts(candidate, own, options, saved, reachable=not _is_silent(beforehand))
    except ToolchainError:
        raise
    except TailraceError as failed:
        beforehand.append(as_finding(failed))
        query = Query(pipeline.name, options.mode, options.interval_ms, capacity=engine.capacity(own), saved=saved)
    return run_checks(_with_enough_slots(query) if ours else query, beforehand)


def check_frame(what: DataStreamWriter | DataFrame, options: RunOptions) -> CheckReport:
    """Check any streaming query, or what may become one."""
    writer = what if isinstance(what, DataStreamWriter) else None
    frame = engine.writer_frame(what) if isinstance(what, DataStreamWriter) else what
    if not frame.isStreaming:
        raise DefinitionError("this DataFrame is not a stream", fix="make it with spark.readStream")
    told = engine.writer_settings(writer) if writer is not None else None
    given = told.options if told is not None else {}
    name = given.get("queryname") or "query"
    checkpoint = Checkpoint(options.checkpoint or given.get("checkpointlocation") or default_location(name))
    beforehand: list[Finding] = []
    topics = _frame_topics(frame, told, beforehand)
    owner = Owner(name, topics.names, given.get("topic", told.format if told is not None else ""))
    own = query_session(frame.sparkSession, options, checkpoint, topics.total)
    candidate = (
        Candidate(name, engine.frame_on(frame, own))
        if writer is None
        else writer_candidate(writer, own, name, options.mode)
    )
    query = facts(candidate, own, options, saved_in(checkpoint, owner), reachable=not _is_silent(beforehand))
    return run_checks(query, beforehand)


def _with_enough_slots(query: Query) -> Query:
    """The query in a Spark of Tailrace's own, which gets as many slots as the query needs when it starts."""
    if query.slots is None or query.slots.required <= query.capacity.free:
        return query
    enough = engine.Capacity(query.slots.required + query.capacity.taken, query.capacity.taken)
    return replace(query, capacity=enough, master=f"local[{enough.slots}]")


def _partitions(topics: PipelineTopics, beforehand: list[Finding]) -> int | None:
    """The partitions of all sources; what the broker refuses is a finding."""
    try:
        topics.require_sink()
        sources = topics.sources()
    except (KafkaError, DefinitionError) as refused:
        beforehand.append(as_finding(refused))
        return None
    return sum(sum(counts.values()) for counts in sources) if sources is not None else None


def _frame_topics(frame: DataFrame, sink: engine.WriterSettings | None, beforehand: list[Finding]) -> QueryTopics:
    """The topics of everything it reads; what a broker refuses is a finding."""
    try:
        topics = query_topics(frame)
        require_sink_topic(sink)
    except KafkaError as refused:
        beforehand.append(as_finding(refused))
        return QueryTopics((None,))
    return topics


def _is_silent(beforehand: Sequence[Finding]) -> bool:
    """Whether the broker did not answer: it is not waited for again."""
    return any(finding.code == BrokerUnreachable.code for finding in beforehand)
