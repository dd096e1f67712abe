"""Checking a query without starting it: nothing runs, nothing is written, no topic is made."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, default_location
from tailrace.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    DefinitionError,
    TailraceError,
    TlsFailed,
    ToolchainError,
)
from tailrace.frames.source import record_schema
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.slots import Capacity, cores_for
from tailrace.preflight.query import Query
from tailrace.preflight.report import CheckReport
from tailrace.preflight.run_checks import run_checks
from tailrace.prepare.candidate import (
    Identity,
    as_finding,
    facts,
    frame_candidate,
    pipeline_candidate,
    refuse_pipelines_options,
    require_sink_topic,
    saved_in,
    writer_candidate,
    writer_identity,
    writer_owner,
)
from tailrace.prepare.options import DEFAULT_TRIGGER_EVERY, RunOptions, run_options
from tailrace.prepare.pipeline_topics import PipelineTopics, total_partitions
from tailrace.prepare.query_session import query_session, refuse_connect, spark_for
from tailrace.prepare.sources import QueryTopics, query_topics, require_groups
from tailrace.spark_session import prelaunch_jvm

if TYPE_CHECKING:
    from tailrace.preflight.finding import Finding

T = TypeVar("T")
_SILENT = {BrokerUnreachable.code, TlsFailed.code, AuthenticationFailed.code}


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
        TailraceError: It could not be checked: Spark cannot be started, an option is not known, no broker is named.
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
    beforehand = Beforehand()
    servers = resolve_bootstrap_servers(options.bootstrap_servers)
    prelaunch_jvm(options.conf, options.master)
    topics = PipelineTopics(pipeline, servers)
    beforehand.ask(topics.require_sink)
    sources = None if beforehand.silent else beforehand.ask(topics.sources)
    spark, ours = spark_for(options, total_partitions(sources), announce)
    if not beforehand.silent:
        beforehand.ask(lambda: topics.require_sink_by(spark))
    if sources is None and topics.only_spark_connects and not beforehand.silent:
        sources = beforehand.ask(lambda: topics.sources_by(spark))
    if not beforehand.silent:
        beforehand.ask(lambda: topics.require_possible_dead_letters(spark))
    location = Checkpoint(options.checkpoint or default_location(pipeline.name))
    saved = beforehand.ask(lambda: saved_in(location, topics.owner(sources)))
    own = query_session(spark, options, location, total_partitions(sources))

    def look() -> Query:
        candidate = pipeline_candidate(pipeline, own, servers, options)
        unknown = topics.rights_unknown | beforehand.unknown_groups(candidate.frame, own)
        partitions = total_partitions(sources)
        return facts(candidate.with_unknown(unknown), own, options, saved, partitions, reachable=not beforehand.silent)

    query = beforehand.ask(look)
    if query is None:
        query = Query(pipeline.name, options.mode, options.interval_ms, capacity=engine.capacity(own), saved=saved)
    elif sources is not None and location.is_fresh():
        found = sources
        beforehand.ask(
            lambda: topics.require_fitting_records(found, [record_schema(source) for source in pipeline.sources])
        )
    return run_checks(_with_enough_slots(query) if ours else query, beforehand.findings)


def check_frame(what: DataStreamWriter | DataFrame, options: RunOptions) -> CheckReport:
    """Check any streaming query, or what may become one."""
    refuse_pipelines_options(options)
    if isinstance(what, DataStreamWriter):
        return _check_writer(what, options)
    _require_stream(what)
    beforehand = Beforehand()
    topics = beforehand.ask(lambda: query_topics(what)) or QueryTopics((None,))
    own = query_session(what.sparkSession, options, Checkpoint(options.checkpoint or NOWHERE), topics.total)
    unknown = {*topics.rights_unknown, *beforehand.unknown_groups(what, own)}
    candidate = frame_candidate(what, own, options).with_unknown(unknown)
    query = facts(candidate, own, options, None, topics.total, reachable=not beforehand.silent)
    return run_checks(query, beforehand.findings)


def _check_writer(writer: DataStreamWriter, options: RunOptions) -> CheckReport:
    beforehand = Beforehand()
    frame, told = engine.writer_frame(writer), engine.writer_settings(writer)
    _require_stream(frame)
    identity = beforehand.ask(lambda: writer_identity(told, options)) or Identity("query", NOWHERE)
    topics = beforehand.ask(lambda: query_topics(frame)) or QueryTopics((None,))
    unknown = set(topics.rights_unknown)
    if not beforehand.silent:
        unknown |= set(beforehand.ask(lambda: require_sink_topic(told, frame.sparkSession)) or ())
    checkpoint = Checkpoint(identity.location)
    saved = beforehand.ask(lambda: saved_in(checkpoint, writer_owner(identity, topics, told)))
    own = query_session(frame.sparkSession, options, checkpoint, topics.total)
    unknown |= beforehand.unknown_groups(frame, own)
    candidate = writer_candidate(writer, own, identity.name, options).with_unknown(unknown)
    query = facts(candidate, own, options, saved, topics.total, reachable=not beforehand.silent)
    return run_checks(query, beforehand.findings)


NOWHERE = "memory:/no-checkpoint"
"""The checkpoint of what has none: not on this machine, so that nothing is looked for."""


class Beforehand:
    """What is found while the facts are gathered."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None and a finding."""
        try:
            return question()
        except ToolchainError:
            raise  # it could not be checked
        except TailraceError as refused:
            self.findings.append(as_finding(refused))
            return None

    def unknown_groups(self, frame: DataFrame, own: SparkSession) -> set[str]:
        """The consumer groups of a query of which the broker does not say whether Spark may join them."""
        return set() if self.silent else self.ask(lambda: require_groups(frame, own)) or set()

    @property
    def silent(self) -> bool:
        """Whether a broker did not answer, or takes no connection of ours: it is not waited for again."""
        return any(finding.code in _SILENT for finding in self.findings)


def _require_stream(frame: DataFrame) -> None:
    if not frame.isStreaming:
        raise DefinitionError("this DataFrame is not a stream", fix="make it with spark.readStream")


def _with_enough_slots(query: Query) -> Query:
    """The query in a Spark of Tailrace's own, which gets as many slots as the query needs when it starts."""
    if query.slots is None or query.slots.required <= query.capacity.free:
        return query
    enough = Capacity(query.slots.required + query.capacity.taken, query.capacity.taken)
    return replace(query, capacity=enough, master=f"local[{cores_for(enough.slots, query.settings)}]")
