"""A query on a session of its own, before it is started: what is known of it, and what the checks say."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner
from tailrace.errors import (
    CheckpointForeign,
    CheckpointFormatOld,
    KafkaError,
    QueryRefused,
    SettingRefused,
    SlotsMissing,
    TailraceError,
)
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import topic_settings
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.slots import count_slots
from tailrace.plan.sources import SourceTopics, source_topics
from tailrace.preflight.checks import (
    checkpoint_foreign,
    checkpoint_format,
    checkpoint_partitions,
    setting_unworkable,
    slots_missing,
)
from tailrace.preflight.checks.state_unbounded import STATEFUL
from tailrace.preflight.finding import Finding, Severity, error
from tailrace.preflight.query import Query, Saved
from tailrace.preflight.report import CheckReport
from tailrace.runtime.failure import translate_failure
from tailrace.runtime.frames import pipeline_frame
from tailrace.runtime.options import RunOptions

_RAISED: Mapping[str, type[TailraceError]] = {
    slots_missing.CODE: SlotsMissing,
    setting_unworkable.CODE: SettingRefused,
    checkpoint_partitions.CODE: SettingRefused,
    checkpoint_format.CODE: CheckpointFormatOld,
    checkpoint_foreign.CODE: CheckpointForeign,
}


@dataclass(frozen=True)
class Candidate:
    """A query that may be started.

    Attributes:
        name: Its name.
        frame: What it writes.
        writer: How; None where only a DataFrame is looked at.
        counts: The counts of its sources' records.
        lost_lineage: What of a record's origin its outputs do not carry, in words; or nothing.
    """

    name: str
    frame: DataFrame
    writer: DataStreamWriter | None = None
    counts: tuple[engine.RecordCounts, ...] = ()
    lost_lineage: str = ""


def pipeline_candidate(pipeline: Pipeline, own: SparkSession, bootstrap_servers: str) -> Candidate:
    """A pipeline on a session of its own; what the user's function adds to the plan remembers its line."""
    try:
        with engine.recorded_lines(own):
            frame = pipeline_frame(pipeline, own, bootstrap_servers)
    except PySparkException as refused:
        raise translate_failure(pipeline.name, str(refused)) from refused
    writer = frame.rows.writeStream.format("kafka").options(**pipeline.sink.options)
    writer = writer.options(**pipeline.sink.destination).option("kafka.bootstrap.servers", bootstrap_servers)
    return Candidate(pipeline.name, frame.rows, writer.outputMode("update"), frame.counts, frame.lost)


def writer_candidate(writer: DataStreamWriter, own: SparkSession, name: str, mode: Mode) -> Candidate:
    """Any streaming query on a session of its own."""
    moved = engine.writer_on(writer, own)
    frame = engine.writer_frame(moved)
    return Candidate(name, frame, _in_update_mode(moved, frame, mode))


def _in_update_mode(writer: DataStreamWriter, frame: DataFrame, mode: Mode) -> DataStreamWriter:
    """A writer in update mode where real time needs it and it changes nothing: nothing is kept, nothing is final."""
    given = engine.writer_settings(writer).output_mode.lower()
    if mode is not Mode.REALTIME or given != "append":
        return writer
    plan = engine.examine(frame, output_mode="append").plan
    stateful = plan is None or any(node.name.startswith(STATEFUL) for node in plan.walk())
    return writer if stateful else writer.outputMode("update")


def facts(candidate: Candidate, own: SparkSession, options: RunOptions, saved: Saved | None) -> Query:
    """Everything that the checks may ask about a candidate."""
    realtime = options.mode is Mode.REALTIME
    sink = engine.writer_settings(candidate.writer) if candidate.writer is not None else None
    reads = tuple(engine.stream_reads(candidate.frame))
    topics = tuple(_topics(read, own) for read in reads)
    examined = engine.examine(
        candidate.frame,
        output_mode=sink.output_mode if sink is not None else "update",
        interval_ms=options.interval_ms if realtime else 0,
        sink=sink,
        ask=realtime and bool(topics) and None not in topics,
    )
    known = [each for each in topics if each is not None]
    countable = examined.plan is not None and known and None not in topics
    return Query(
        candidate.name,
        options.mode,
        options.interval_ms,
        plan=examined.plan,
        refusals=examined.refusals,
        tasks=examined.tasks,
        windows_s=examined.windows_s,
        reads=reads,
        topics=topics,
        slots=count_slots(examined.plan, sum(each.total for each in known)) if countable and examined.plan else None,
        capacity=engine.capacity(own),
        master=own.sparkContext.master,
        settings=engine.explicit_settings(own) | dict(options.conf),
        sink=sink,
        sink_topic_settings=_sink_topic_settings(sink),
        saved=saved,
    )


def saved_in(checkpoint: Checkpoint, owner: Owner | None) -> Saved:
    """What a checkpoint says, without touching it; without an owner it is this query's already."""
    return Saved(
        checkpoint.location,
        checkpoint.commit_format() or 0,
        checkpoint.pinned_shuffle_partitions(),
        checkpoint.other_owner(owner) if owner is not None else "",
    )


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
    raise _RAISED.get(worst.code, QueryRefused)(
        f"query {report.name!r}: {worst.title}{place}", why=worst.why + more, fix=worst.fix
    )


def _topics(read: engine.StreamRead, spark: SparkSession) -> SourceTopics | None:
    try:
        return source_topics(read, spark)
    except KafkaError:
        return None  # told where the pipeline's topics are looked at


def _sink_topic_settings(sink: engine.WriterSettings | None) -> dict[str, str]:
    """The settings of a Kafka sink's topic that are not the broker's defaults."""
    if sink is None or sink.format != "kafka" or "topic" not in sink.options:
        return {}
    config = client_config(sink.options.get("kafka.bootstrap.servers", ""), sink.options)
    if config is None:
        return {}
    try:
        return topic_settings(config, sink.options["topic"])
    except KafkaError:
        return {}
