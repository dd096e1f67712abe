"""A query on a session of its own, before it is started: what is known of it, and what the checks say."""

import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.conditions.failures import translate_failure
from tailrace.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    CheckpointError,
    CheckpointForeign,
    CheckpointFormatOld,
    CheckpointOutgrown,
    DefinitionError,
    KafkaError,
    NotAuthorized,
    OptionRefused,
    QueryRefused,
    SettingRefused,
    SlotsMissing,
    TailraceError,
    TlsFailed,
)
from tailrace.frames.pipeline import pipeline_frame
from tailrace.kafka.client import client_config
from tailrace.kafka.rights import WRITE
from tailrace.kafka.topics import ClientConfig, TopicFacts, partition_counts, topic_facts
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.slots import Capacity, Slots, count_slots
from tailrace.plan.streams import WriterSettings
from tailrace.preflight.checks import (
    broker_unreachable,
    checkpoint_foreign,
    checkpoint_format,
    checkpoint_outgrown,
    checkpoint_partitions,
    setting_unworkable,
    slots_missing,
)
from tailrace.preflight.finding import Finding, Severity, error
from tailrace.preflight.query import STATEFUL, Query, Saved
from tailrace.preflight.report import CheckReport
from tailrace.prepare.options import RunOptions
from tailrace.prepare.python_functions import install_functions
from tailrace.prepare.rights import BrokerAccess
from tailrace.prepare.sources import QueryTopics

_RAISED: Mapping[str, type[TailraceError]] = {
    slots_missing.CODE: SlotsMissing,
    setting_unworkable.CODE: SettingRefused,
    checkpoint_partitions.CODE: SettingRefused,
    checkpoint_format.CODE: CheckpointFormatOld,
    checkpoint_foreign.CODE: CheckpointForeign,
    checkpoint_outgrown.CODE: CheckpointOutgrown,
    broker_unreachable.CODE: BrokerUnreachable,
    TlsFailed.code: TlsFailed,
    AuthenticationFailed.code: AuthenticationFailed,
    NotAuthorized.code: NotAuthorized,
}

UNKNOWN = TopicFacts({}, 0)
_ENDING_S = 3.0
"""How long the tasks of a stopped query may take to end."""


@dataclass(frozen=True)
class Candidate:
    """A query that may be started.

    Attributes:
        name: Its name.
        frame: What it writes.
        writer: How; None where only a DataFrame is looked at.
        counts: The counts of its sources' records.
        lost_lineage: What of a record's origin its outputs do not carry, in words; or nothing.
        costs: What its Python functions cost, where the engine runs them.
        rights_unknown: The topics of which a broker does not say whether this user may use them.
        microbatch_mode: Its output mode in micro-batch.
    """

    name: str
    frame: DataFrame
    writer: DataStreamWriter | None = None
    counts: tuple[engine.RecordCounts, ...] = ()
    lost_lineage: str = ""
    costs: engine.FunctionCosts | None = None
    rights_unknown: tuple[str, ...] = ()
    microbatch_mode: str = "update"

    def with_unknown(self, topics: Iterable[str]) -> "Candidate":
        """The same, knowing the topics of which a broker does not say whether this user may use them."""
        return replace(self, rights_unknown=tuple(sorted(topics)))

    @property
    def watched(self) -> "tuple[engine.RecordCounts | engine.FunctionCosts, ...]":
        """Everything of it that is counted while it runs."""
        return (*self.counts, *([self.costs] if self.costs is not None else []))


def pipeline_candidate(
    pipeline: Pipeline,
    own: SparkSession,
    bootstrap_servers: str,
    options: RunOptions,
    *,
    topic_limit: int | None = None,
) -> Candidate:
    """A pipeline on a session of its own; what the user's function adds to the plan remembers its line.

    Args:
        pipeline: The pipeline.
        own: The session.
        bootstrap_servers: The brokers.
        options: How it is to run.
        topic_limit: The sink topic's ``max.message.bytes``; None if it is not known.
    """
    costs = install_functions(own, pipeline.name, options, pipeline, bootstrap_servers)
    try:
        with engine.recorded_lines(own):
            frame = pipeline_frame(
                pipeline, own, bootstrap_servers, carries_python=costs is not None, topic_limit=topic_limit
            )
    except PySparkException as refused:
        raise translate_failure(pipeline.name, str(refused)) from refused
    writer = frame.rows.writeStream.format("kafka").options(**pipeline.sink.options)
    writer = writer.options(**pipeline.sink.destination).option("kafka.bootstrap.servers", bootstrap_servers)
    return Candidate(pipeline.name, frame.rows, writer.outputMode("update"), frame.counts, frame.lost, costs)


def writer_candidate(writer: DataStreamWriter, own: SparkSession, name: str, options: RunOptions) -> Candidate:
    """Any streaming query on a session of its own."""
    costs = install_functions(own, name, options)
    moved = engine.writer_on(writer, own)
    frame = engine.writer_frame(moved)
    return Candidate(
        name,
        frame,
        _in_update_mode(moved, frame, options.mode),
        costs=costs,
        microbatch_mode=engine.writer_settings(writer).output_mode,
    )


def frame_candidate(frame: DataFrame, own: SparkSession, options: RunOptions) -> Candidate:
    """What may become a streaming query."""
    install_functions(own, "query", options)
    return Candidate("query", engine.frame_on(frame, own))


def _in_update_mode(writer: DataStreamWriter, frame: DataFrame, mode: Mode) -> DataStreamWriter:
    """A writer in update mode where real time needs it and it changes nothing: nothing is kept, nothing is final."""
    given = engine.writer_settings(writer).output_mode.lower()
    if mode is not Mode.REALTIME or given != "append":
        return writer
    plan = engine.examine(frame, output_mode="append").plan
    stateful = plan is None or any(node.name.startswith(STATEFUL) for node in plan.walk())
    return writer if stateful else writer.outputMode("update")


@dataclass(frozen=True)
class Identity:
    """By what a streaming query is known from one start to the next."""

    name: str
    location: str | Path


def writer_identity(told: WriterSettings, options: RunOptions) -> Identity:
    """A writer's name and its checkpoint.

    Raises:
        DefinitionError: It has neither.
    """
    name, location = told.options.get("queryname"), options.checkpoint or told.options.get("checkpointlocation")
    if name is None and location is None:
        raise DefinitionError(
            "the query has neither a name nor a checkpoint",
            why="its progress is saved in a folder that is found again by one of them",
            fix='.queryName("payments") or .option("checkpointLocation", DIR) on the writer',
        )
    return Identity(name or "query", location or default_location(name or "query"))


def writer_owner(identity: Identity, topics: QueryTopics, told: WriterSettings) -> Owner:
    """Whose a writer's checkpoint is."""
    return Owner(identity.name, topics.names, told.options.get("topic", told.format))


def refuse_pipelines_options(options: RunOptions) -> None:
    """Refuse what only a pipeline can be given: a writer has its brokers and its Spark already.

    Raises:
        OptionRefused: One of them was given.
    """
    if options.bootstrap_servers is not None:
        raise OptionRefused(
            "bootstrap_servers= is for a tr.Pipeline; a DataStreamWriter has its brokers already",
            fix='.option("kafka.bootstrap.servers", ...) on its reader and on the writer',
        )
    if options.master is not None:
        raise OptionRefused(
            "master= is for a tr.Pipeline; a DataStreamWriter has its Spark already",
            fix="tr.session(master=...) before the query is made",
        )


def facts(
    candidate: Candidate,
    own: SparkSession,
    options: RunOptions,
    saved: Saved | None,
    partitions: int | None,
    *,
    reachable: bool = True,
) -> Query:
    """Everything that the checks may ask about a candidate.

    Args:
        candidate: The query.
        own: Its session.
        options: How it is to run.
        saved: Its checkpoint.
        partitions: Those of all its sources; None where they are not known.
        reachable: Whether its brokers answer; those that do not are not waited for again.
    """
    realtime = options.mode is Mode.REALTIME
    sink = engine.writer_settings(candidate.writer) if candidate.writer is not None else None
    reads = tuple(engine.stream_reads(candidate.frame))
    examined = engine.examine(
        candidate.frame,
        output_mode=sink.output_mode if sink is not None else "update",
        microbatch_mode=candidate.microbatch_mode,
        interval_ms=options.interval_ms if realtime else 0,
        sink=sink,
        ask=realtime and reachable and partitions is not None,
        starts=saved.offsets if saved is not None and len(saved.offsets) == len(reads) else (),
    )
    plan = examined.plan
    slots = count_slots(plan, partitions) if plan is not None and partitions is not None else None
    sink_topic = _sink_topic(sink) if reachable else UNKNOWN
    return Query(
        candidate.name,
        options.mode,
        options.interval_ms,
        plan=plan,
        refusals=examined.refusals,
        tasks=examined.tasks,
        windows_s=examined.windows_s,
        calls=examined.calls,
        pivots=examined.pivots,
        runs_in_microbatch=examined.microbatch,
        reads=reads,
        slots=slots,
        capacity=_capacity(own, slots) if realtime else engine.capacity(own),
        master=own.sparkContext.master or "",
        settings=engine.explicit_settings(own) | dict(options.conf),
        sink=sink,
        sink_topic_settings=sink_topic.settings,
        sink_replicas=sink_topic.replicas,
        saved=saved,
        rights_unknown=candidate.rights_unknown,
    )


def saved_in(checkpoint: Checkpoint, owner: Owner | None) -> Saved:
    """What a checkpoint says, without touching it; without an owner it is this query's already.

    Raises:
        CheckpointError: It cannot be read.
    """
    try:
        return Saved(
            checkpoint.location,
            checkpoint.commit_format() or 0,
            checkpoint.pinned_shuffle_partitions(),
            checkpoint.other_owner(owner) if owner is not None else "",
            checkpoint.saved_offsets(),
            checkpoint.saved_costs(),
        )
    except OSError as refused:
        raise CheckpointError(
            f"the checkpoint {checkpoint.location} cannot be read",
            why=refused.strerror or str(refused),
            fix="give this user the right to read it, or choose another: --checkpoint DIR",
        ) from refused


def as_finding(failed: TailraceError) -> Finding:
    """An error that was met while the facts were gathered."""
    return error(failed.code, failed.what, why=failed.why, fix=failed.fix)


def require_ok(report: CheckReport) -> None:
    """Refuse a query that would not run, or would leave records unread.

    Raises:
        TailraceError: The worst finding, and how many more there are.
    """
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    if not errors:
        return
    worst = errors[0]
    place = f" ({worst.where})" if worst.where else ""
    more = f"; tailrace check tells {len(errors) - 1} more" if len(errors) > 1 else ""
    refused = _RAISED.get(worst.code, QueryRefused)(
        f"query {report.name!r}: {worst.title}{place}", why=worst.why + more, fix=worst.fix
    )
    refused.code = worst.code
    raise refused


def _capacity(own: SparkSession, slots: Slots | None) -> Capacity:
    """What Spark has; tasks of a query that was just stopped are waited for, where they are in the way."""
    deadline = time.monotonic() + _ENDING_S
    found = engine.capacity(own)
    while slots is not None and found.free < slots.required <= found.slots and time.monotonic() < deadline:
        time.sleep(0.1)
        found = engine.capacity(own)
    return found


def require_sink_topic(sink: WriterSettings | None, spark: SparkSession) -> list[str]:
    """See that the topic that a writer names is there, and may be written to.

    Returns:
        The topic, if the broker does not say whether it may.

    Raises:
        KafkaError: It is not there, may not be written to, or the broker does not answer.
    """
    if sink is None or sink.format != "kafka" or not {"topic", "kafka.bootstrap.servers"} <= set(sink.options):
        return []
    config, topic = _sink_config(sink), sink.options["topic"]
    if config is None:
        engine.kafka_partitions(spark, sink.options, [topic])
    else:
        partition_counts(config, [topic])
    return BrokerAccess(sink.options, spark).require(WRITE, [topic])


def _sink_topic(sink: WriterSettings | None) -> TopicFacts:
    """What the broker says of a Kafka sink's topic."""
    config = _sink_config(sink)
    if sink is not None and config is not None:
        with contextlib.suppress(KafkaError):
            return topic_facts(config, sink.options["topic"])
    return UNKNOWN


def _sink_config(sink: WriterSettings | None) -> ClientConfig | None:
    """How to ask the broker of a Kafka sink; None where it names no topic, or only Spark can ask."""
    if sink is None or sink.format != "kafka" or "topic" not in sink.options:
        return None
    return client_config(sink.options.get("kafka.bootstrap.servers", ""), sink.options)
