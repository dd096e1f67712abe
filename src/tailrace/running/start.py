"""Starting a query, checked first. The only caller of ``DataStreamWriter.start``."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, default_location
from tailrace.conditions.failures import translate_failure
from tailrace.errors import DefinitionError, OptionRefused
from tailrace.frames.source import record_schema
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.bound import Bound
from tailrace.preflight.checks import slots_missing
from tailrace.preflight.finding import Severity
from tailrace.preflight.report import CheckReport
from tailrace.preflight.run_checks import run_checks
from tailrace.prepare.candidate import (
    Candidate,
    as_finding,
    facts,
    pipeline_candidate,
    refuse_pipelines_options,
    require_ok,
    require_sink_topic,
    saved_in,
    writer_candidate,
    writer_identity,
    writer_owner,
)
from tailrace.prepare.options import DEFAULT_PYTHON_TIMEOUT, DEFAULT_TRIGGER_EVERY, RunOptions, run_options
from tailrace.prepare.pipeline_topics import PipelineTopics, from_the_beginning, total_partitions
from tailrace.prepare.query_session import query_session, rebuilt, refuse_connect, spark_for
from tailrace.prepare.sources import query_topics, require_groups
from tailrace.running.broker_watch import broker_configs
from tailrace.running.confirm import confirm
from tailrace.running.query import RunningQuery, jvm_ended
from tailrace.running.signals import defer_signals
from tailrace.running.visible_records import visible_records
from tailrace.spark_session import pin_context, prelaunch_jvm


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
    starved: str = "stop",
    python_timeout: str = DEFAULT_PYTHON_TIMEOUT,
) -> RunningQuery:
    """Check a pipeline, or any streaming query, and start it.

    Args:
        what: A :class:`Pipeline`, or a ``DataStreamWriter`` (``df.writeStream.format("kafka")...``).
        mode: ``"realtime"``, ``"microbatch"``, or ``"auto"``: real time where the check finds nothing against it.
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
        starved: Real time: what to do where a partition is not read any more, such as one that was added to a topic
            while no slot was free: ``"stop"`` with an error, or ``"warn"``.
        python_timeout: How long a Python function may take over the rows it was given. A worker that takes longer is
            ended and replaced, and what it had is tried again.

    Returns:
        The running query. Stop it with ``stop()``, or wait for it with ``wait()``.

    Raises:
        TailraceError: It cannot run; the error says why and what to do.
    """
    options = run_options(
        mode,
        bootstrap_servers=bootstrap_servers,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        trigger_every=trigger_every,
        master=master,
        conf=dict(conf or {}),
        once=once,
        starved=starved,
        python_timeout=python_timeout,
    )
    refuse_connect(what)
    if isinstance(what, Pipeline):
        return start_pipeline(what, options)
    if isinstance(what, DataStreamWriter):
        refuse_pipelines_options(options)
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
    prelaunch_jvm(options.conf, options.master)
    if options.once:
        pipeline = from_the_beginning(pipeline)
    topics = PipelineTopics(pipeline, servers)
    topics.require_sink()
    sources = topics.sources()
    checkpoint = Checkpoint(options.checkpoint or default_location(pipeline.name))
    checkpoint.acquire(topics.owner(sources))
    with ExitStack() as lease:
        lease.callback(checkpoint.release)
        spark, ours = spark_for(options, total_partitions(sources), announce)
        topics.require_sink_by(spark)
        if sources is None:
            sources = topics.sources_by(spark)
        found = sources
        schemas = [record_schema(source) for source in pipeline.sources]  # Spark's parser reads them
        topics.require_dead_letters(spark, announce)
        if not private and checkpoint.is_fresh():
            # Later it is too late for that: records that do not fit go where the pipeline says.
            topics.require_fitting_records(sources, schemas)
        limit = topics.sink_limit()

        def build(on: SparkSession, how: RunOptions) -> Candidate:
            candidate = pipeline_candidate(pipeline, on, servers, how, topic_limit=limit)
            return candidate.with_unknown(topics.rights_unknown)

        return _start(
            build,
            spark,
            options,
            _Leased(checkpoint, lease),
            total_partitions(sources),
            rebuild=ours,
            bound=lambda: topics.bound(found, alone=private),
        )


def start_writer(writer: DataStreamWriter, options: RunOptions) -> RunningQuery:
    """Check and start any streaming query, on a session of its own."""
    if options.once and options.mode is Mode.REALTIME:
        once = OptionRefused(
            "a DataStreamWriter cannot be run once in real time",
            why="where it has to end is known only of a tr.Pipeline",
            fix="write it as a tr.Pipeline" + (', or mode="microbatch"' if _runs_in_microbatch(writer) else ""),
        )
        if not options.auto:
            raise once
        running = start_writer(writer, options.in_microbatch())
        running.why_microbatch = (as_finding(once),)
        return running
    told = engine.writer_settings(writer)
    identity = writer_identity(told, options)
    frame = engine.writer_frame(writer)
    topics = query_topics(frame)
    unknown = {*topics.rights_unknown, *require_sink_topic(told, frame.sparkSession)}
    checkpoint = Checkpoint(identity.location)
    checkpoint.acquire(writer_owner(identity, topics, told))
    with ExitStack() as lease:
        lease.callback(checkpoint.release)
        return _start(
            lambda on, how: writer_candidate(writer, on, identity.name, how).with_unknown(unknown),
            frame.sparkSession,
            options,
            _Leased(checkpoint, lease),
            topics.total,
            rebuild=False,
        )


@dataclass(frozen=True)
class _Leased:
    """A locked checkpoint. The lease ends the lock if the query is not even begun; from then on the query has it."""

    checkpoint: Checkpoint
    lease: ExitStack


def _start(
    build: Callable[[SparkSession, RunOptions], Candidate],
    spark: SparkSession,
    options: RunOptions,
    leased: _Leased,
    partitions: int | None,
    *,
    rebuild: bool,
    bound: Callable[[], Bound] | None = None,
) -> RunningQuery:
    """Plan the query on a session of its own, check it, start it and see that it runs.

    Args:
        build: Makes the query on a session.
        spark: The session to clone.
        options: How it is to run.
        leased: Its checkpoint, locked.
        partitions: Those of all its sources; None if they are not known.
        rebuild: Whether the context may be made anew, with more slots.
        bound: Tells where a bounded run in real time ends.
    """
    own = query_session(spark, options, leased.checkpoint, partitions)
    candidate = build(own, options)
    candidate = candidate.with_unknown({*candidate.rights_unknown, *require_groups(candidate.frame, own)})
    query = facts(candidate, own, options, saved_in(leased.checkpoint, None), partitions)
    report = run_checks(query)
    if rebuild and query.slots is not None and report.errors == {slots_missing.CODE}:
        return _start(build, rebuilt(spark, query.slots), options, leased, partitions, rebuild=False, bound=bound)
    if options.auto and not report.ok:
        running = _start(build, spark, options.in_microbatch(), leased, partitions, rebuild=rebuild)
        running.why_microbatch = tuple(each for each in report.findings if each.severity is Severity.ERROR)
        return running
    require_ok(report)
    # Before the start: it ends with what is there now.
    end = bound() if bound is not None and options.once and query.realtime else None
    with ExitStack() as unconfirmed:
        with defer_signals():
            # Ctrl-C while Spark starts the query would leave it running without a handle.
            running = unconfirmed.enter_context(_begin(candidate, options, leased, report))
        pin_context()  # stopping it would stop the query
        running.lost_lineage = candidate.lost_lineage
        running.sink_topic = query.sink.options.get("topic", "") if query.sink is not None else ""
        if query.realtime and options.once:
            # Before anything else is waited for: it must see the batch in which the run is to end begin.
            running.watch = engine.BatchWatch(running.query)
        confirm(running)
        if query.realtime:
            running.follow_flow(options.starved, visible_records(query.reads))
        running.follow_brokers(broker_configs(query.reads, query.sink))
        if end is not None:
            running.end_at(end)
        unconfirmed.pop_all()
    return running


def _stop_unknown(candidate: Candidate) -> None:
    """Stop a query that Spark may have started although no handle came back."""
    for counts in candidate.watched:
        counts.close()
    for query in candidate.frame.sparkSession.streams.active:
        if query.name == candidate.name:
            query.stop()


def _runs_in_microbatch(writer: DataStreamWriter) -> bool:
    told = engine.writer_settings(writer)
    return engine.examine(engine.writer_frame(writer), output_mode=told.output_mode, sink=told).microbatch


def _begin(candidate: Candidate, options: RunOptions, leased: _Leased, report: CheckReport) -> RunningQuery:
    """Hand the query to Spark, and with it the checkpoint's lock."""
    if candidate.writer is None:
        raise AssertionError("a DataFrame alone is never started")
    realtime = options.mode is Mode.REALTIME
    writer = engine.with_trigger(
        candidate.writer, realtime=realtime, interval_ms=options.interval_ms, once=options.once
    )
    if realtime and options.once:
        # A bounded run ends right after a checkpoint, which must be on disk by then.
        writer = writer.option("asyncProgressTrackingEnabled", "false")
    writer = writer.queryName(candidate.name).option("checkpointLocation", leased.checkpoint.location)
    for counts in candidate.watched:
        counts.watch()
    lease = leased.lease.pop_all()  # from here on the query may run, whatever Python is told of it
    try:
        started = writer.start()
    except PySparkException as refused:
        lease.close()
        for counts in candidate.watched:
            counts.close()
        alternative = report.runs_in_microbatch
        raise translate_failure(candidate.name, str(refused), runs_in_microbatch=alternative) from refused
    except BaseException as failed:
        if isinstance(failed, Exception) and engine.has_jvm_ended(failed):
            lease.close()
            raise jvm_ended(candidate.name) from failed
        _stop_unknown(candidate)
        lease.close()
        raise
    return RunningQuery(
        started,
        name=candidate.name,
        mode=options.mode,
        checkpoint=leased.checkpoint,
        report=report,
        counts=candidate.counts,
        costs=candidate.costs,
    )
