"""Prepare a query: the one path that ``check`` and ``start`` share.

Ask the brokers, open the checkpoint, find or start Spark, plan the query on a session of its own, run every check. A
dry run collects errors, locks nothing and creates no topic; otherwise the first error is raised.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint
from tailrace.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    CheckpointForeign,
    CheckpointFormatOld,
    CheckpointOutgrown,
    DataLost,
    DefinitionError,
    DeliveryRefused,
    NotAuthorized,
    QueryRefused,
    SettingRefused,
    SlotsMissing,
    TailraceError,
    TlsFailed,
)
from tailrace.pipeline import Mode, Pipeline
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.slots import Capacity, cores_for
from tailrace.preflight.checks import (
    broker_unreachable,
    checkpoint_foreign,
    checkpoint_format,
    checkpoint_outgrown,
    checkpoint_partitions,
    data_lost,
    delivery_refused,
    setting_unworkable,
    slots_missing,
)
from tailrace.preflight.finding import Severity
from tailrace.preflight.query import Query, Saved
from tailrace.preflight.report import CheckReport
from tailrace.preflight.run_checks import run_checks
from tailrace.prepare.facts import gather_facts, read_checkpoint
from tailrace.prepare.findings import Findings
from tailrace.prepare.options import RunOptions
from tailrace.prepare.pipeline_target import PipelineTarget
from tailrace.prepare.query_session import query_session, refuse_connect, restarted
from tailrace.prepare.target import Announce, BuiltQuery, Target
from tailrace.prepare.topics import require_groups
from tailrace.prepare.writer_target import FrameTarget, WriterTarget

TASKS_PER_CORE = 4
"""With ``tasks="auto"`` on this machine: more tasks would wait for each other, and each costs memory and a consumer."""
_RAISED: Mapping[str, type[TailraceError]] = {
    slots_missing.CODE: SlotsMissing,
    setting_unworkable.CODE: SettingRefused,
    checkpoint_partitions.CODE: SettingRefused,
    checkpoint_format.CODE: CheckpointFormatOld,
    checkpoint_foreign.CODE: CheckpointForeign,
    checkpoint_outgrown.CODE: CheckpointOutgrown,
    data_lost.CODE: DataLost,
    delivery_refused.CODE: DeliveryRefused,
    broker_unreachable.CODE: BrokerUnreachable,
    TlsFailed.code: TlsFailed,
    AuthenticationFailed.code: AuthenticationFailed,
    NotAuthorized.code: NotAuthorized,
}


@dataclass(frozen=True)
class Prepared:
    """A query that is planned and checked. Its context unlocks the checkpoint unless the query has started.

    Attributes:
        options: The options that it was planned with; ``auto`` may have become micro-batch.
        query: The facts about it.
        report: What the checks say.
        checkpoint: Its checkpoint, locked unless this is a dry run.
        built: The query itself; None if it could not be built.
        lease: Unlocks the checkpoint.
        resumed: What the last run has left; None in a dry run.
    """

    options: RunOptions
    query: Query
    report: CheckReport
    checkpoint: Checkpoint
    built: BuiltQuery | None
    lease: ExitStack
    resumed: engine.Resumed | None = None

    @property
    def delivery(self) -> DeliveryPlan:
        """What the query can guarantee about its outputs after a crash."""
        return self.query.delivery or DeliveryPlan(keeps_progress=False, effectively_once=False)

    def require_ok(self) -> None:
        """Refuse a query that would not run, or would leave records unread.

        Raises:
            TailraceError: The worst finding, and how many more there are.
        """
        errors = [finding for finding in self.report.findings if finding.severity is Severity.ERROR]
        if not errors:
            return
        worst = errors[0]
        place = f" ({worst.where})" if worst.where else ""
        more = f"; tailrace check shows {len(errors) - 1} more" if len(errors) > 1 else ""
        refused = _RAISED.get(worst.code, QueryRefused)(
            f"query {self.report.name!r}: {worst.title}{place}", why=worst.why + more, fix=worst.fix
        )
        refused.code = worst.code
        raise refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _raised: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.lease.close()


def target_of(what: Pipeline | DataStreamWriter | DataFrame, options: RunOptions, *, private: bool = False) -> Target:
    """Return what is to be prepared.

    Args:
        what: The user's pipeline, writer or DataFrame.
        options: The options of the run.
        private: Whether the topics belong to a test; see `PipelineTarget`.

    Raises:
        DefinitionError: It is none of these, or not a stream.
    """
    refuse_connect(what)
    if isinstance(what, Pipeline):
        return PipelineTarget(what, options, private=private)
    if isinstance(what, DataStreamWriter):
        return WriterTarget(what, options)
    if isinstance(what, DataFrame):
        return FrameTarget(what, options)
    raise DefinitionError(
        f"{type(what).__name__!r} is not a query",
        fix="pass a tr.Pipeline or a DataStreamWriter (df.writeStream...); to check, also a streaming DataFrame",
    )


def prepare(target: Target, options: RunOptions, *, dry_run: bool, announce: Announce | None = None) -> Prepared:
    """Plan and check a query.

    Args:
        target: The pipeline, writer or DataFrame.
        options: The options of the run.
        dry_run: Collect errors in the report, lock no checkpoint, create no topic.
        announce: Receives one line for each step that takes long or creates something.

    Raises:
        TailraceError: It cannot be prepared; a dry run raises this only if Spark or the options cannot be used.
    """
    findings = Findings(collect=dry_run)
    target.look_up(options, findings)
    checkpoint = target.checkpoint(options, findings)
    with ExitStack() as lease:
        saved, resumed = None, None
        if dry_run:
            saved = findings.ask(lambda: read_checkpoint(checkpoint, target.owner))
        else:
            checkpoint.acquire(target.owner)
            lease.callback(checkpoint.release)
        spark, restartable = target.session(options, announce)
        target.look_up_by(spark, findings, checkpoint)
        if not dry_run:
            target.create_topics(announce)
            resumed = engine.resume(spark, checkpoint.location)
            saved = read_checkpoint(checkpoint)
        planning = _Planning(target, findings, checkpoint, saved, dry_run=dry_run)
        prepared = planning.plan(spark, options, restartable=restartable)
        if announce is not None and prepared.delivery.surprises and not dry_run:
            announce(f"Delivery is {prepared.delivery.in_words}.")
        return replace(prepared, lease=lease.pop_all(), resumed=resumed)


@dataclass(frozen=True)
class _Planning:
    """Plans a query whose brokers have been asked, if necessary more than once."""

    target: Target
    findings: Findings
    checkpoint: Checkpoint
    saved: Saved | None
    dry_run: bool

    def plan(self, spark: SparkSession, options: RunOptions, *, restartable: bool) -> Prepared:
        """Plan and check the query, with more slots or in micro-batch if need be.

        Args:
            spark: The session to clone.
            options: The options of the run.
            restartable: Whether Spark may be restarted with more slots.
        """
        if options.tasks == "auto" and options.realtime:
            return self._plan_with_fitting_tasks(spark, options, restartable=restartable)
        own = query_session(spark, options, self.checkpoint, self.target.tasks(options.source_tasks))
        built = self.findings.ask(lambda: _controlled(self.target.build(own, options), options))
        query = self._facts(built, own, options)
        fitting = _with_enough_slots(query) if restartable else query
        report = run_checks(fitting, self.findings.errors)
        if options.auto and not report.ok and not self.findings.errors:
            prepared = self.plan(spark, options.in_microbatch(), restartable=restartable)
            reasons = tuple(each for each in report.findings if each.severity is Severity.ERROR)
            return replace(prepared, report=replace(prepared.report, why_microbatch=reasons))
        if fitting is not query and report.ok and query.slots is not None and not self.dry_run:
            return self.plan(restarted(spark, query.slots), options, restartable=False)
        return Prepared(options, fitting, report, self.checkpoint, built, ExitStack())

    def _plan_with_fitting_tasks(self, spark: SparkSession, options: RunOptions, *, restartable: bool) -> Prepared:
        """Plan the query with as many tasks for each source as the slots hold, or as suit this machine's cores."""
        if restartable:
            sources = max(1, self.target.sources)
            most = max(1, TASKS_PER_CORE * (os.cpu_count() or 1) // sources)
            return self.plan(spark, replace(options, tasks=most), restartable=True)
        # With mode="auto", missing slots must not choose micro-batch before partitions share tasks.
        prepared = self.plan(spark, replace(options, mode=Mode.REALTIME, tasks=None), restartable=False)
        query = prepared.query
        fits = query.slots is None or query.slots.required <= query.capacity.free
        if fits and not options.auto:
            return prepared
        tasks = None if fits else max(1, query.fitting_tasks)
        return self.plan(spark, replace(options, tasks=tasks), restartable=False)

    def _facts(self, built: BuiltQuery | None, own: SparkSession, options: RunOptions) -> Query:
        if built is not None:
            reads = engine.stream_reads(built.frame)
            self.target.rights_unknown |= self.findings.ask_broker(lambda: require_groups(reads, own)) or set()
            reachable = not self.findings.unreachable
            facts = self.findings.ask(
                lambda: gather_facts(self.target, built, own, options, self.saved, reads=reads, reachable=reachable)
            )
            if facts is not None:
                return facts
        return Query(
            self.target.name,
            options.planned_mode,
            options.interval_ms,
            capacity=engine.capacity(own),
            saved=self.saved,
        )


def _controlled(built: BuiltQuery, options: RunOptions) -> BuiltQuery:
    return built.controlled(
        realtime=options.realtime,
        bounded=options.once and options.realtime,
        tasks=options.source_tasks,
        fail_on_data_loss=None if options.on_data_loss is None else options.on_data_loss == "fail",
    )


def _with_enough_slots(query: Query) -> Query:
    """Return the query as if Spark had enough slots: Tailrace can restart its own Spark with more."""
    if query.slots is None or not query.realtime or query.slots.required <= query.capacity.free:
        return query
    enough = Capacity(query.slots.required + query.capacity.taken, query.capacity.taken)
    return replace(query, capacity=enough, master=f"local[{cores_for(enough.slots, query.settings)}]")
