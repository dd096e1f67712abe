"""Gather the facts about a built query: everything that the checks look at."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner
from tailrace.errors import CheckpointError, KafkaError
from tailrace.plan.delivery import EFFECTIVELY_ONCE
from tailrace.plan.loss import Loss
from tailrace.plan.slots import Capacity, Slots, count_slots
from tailrace.plan.streams import StreamRead
from tailrace.preflight.query import Query, Saved
from tailrace.prepare.capacity import await_capacity
from tailrace.prepare.endpoint import UNKNOWN_TOPIC
from tailrace.prepare.options import RunOptions
from tailrace.prepare.target import BuiltQuery, Target


def gather_facts(
    target: Target,
    built: BuiltQuery,
    own: SparkSession,
    options: RunOptions,
    saved: Saved | None,
    *,
    reads: Sequence[StreamRead],
    reachable: bool,
) -> Query:
    """Return everything that a check may ask about a query.

    Args:
        target: What is prepared; its brokers have been asked.
        built: Its query.
        own: The query's session.
        options: The options of the run.
        saved: The content of its checkpoint.
        reads: Its streaming sources.
        reachable: Whether its brokers respond; if not, they are not waited for again.
    """
    sink = engine.writer_settings(built.writer) if built.writer is not None else None
    # Only a controlled source can share tasks.
    tasks = target.tasks(options.source_tasks if not built.uncontrolled else None, built.reads)
    examined = engine.examine(
        built.frame,
        output_mode=sink.output_mode if sink is not None else "update",
        microbatch_mode=built.microbatch_output,
        interval_ms=options.interval_ms if options.realtime else 0,
        sink=sink,
        ask=options.realtime and reachable and tasks is not None,
        starts=saved.offsets if saved is not None and len(saved.offsets) == len(reads) else (),
    )
    plan = examined.plan
    slots = count_slots(plan, tasks) if plan is not None and tasks is not None else None
    sink_facts = target.sink_facts() if reachable else UNKNOWN_TOPIC
    return Query(
        built.name,
        options.planned_mode,
        options.interval_ms,
        plan=plan,
        refusals=examined.refusals,
        tasks=examined.tasks,
        windows_s=examined.windows_s,
        calls=examined.calls,
        pivots=examined.pivots,
        runs_in_microbatch=examined.microbatch,
        reads=tuple(reads),
        slots=slots,
        capacity=_capacity(own, slots, realtime=options.realtime),
        master=own.sparkContext.master or "",
        settings=engine.explicit_settings(own) | dict(options.conf),
        sink=sink,
        sink_topic_settings=sink_facts.settings,
        sink_replicas=sink_facts.replicas,
        saved=saved,
        rights_unknown=tuple(sorted(target.rights_unknown)),
        bounded=options.once,
        uncontrolled=built.uncontrolled,
        losses=_losses(built, saved, reads) if reachable else (),
        delivery=target.delivery(built, options, plan),
        wants_effectively_once=options.delivery == EFFECTIVELY_ONCE,
        progress_ms=options.progress_every_ms,
    )


def _losses(built: BuiltQuery, saved: Saved | None, reads: Sequence[StreamRead]) -> tuple[Loss, ...]:
    """Return what the brokers no longer have of the records after the checkpoint."""
    if saved is None or saved.committed is None or saved.belongs_to or built.uncontrolled:
        return ()
    if not saved.offsets or len(saved.offsets) != len(reads):
        return ()
    try:
        return engine.lost_records(built.frame, saved.location, saved.committed, saved.offsets)
    except KafkaError:
        return ()  # the engine asks again before the first batch


def read_checkpoint(checkpoint: Checkpoint, owner: Owner | None = None) -> Saved:
    """Read a checkpoint without changing it. Without an owner, do not check whose it is.

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
            checkpoint.last_commit(),
            _complete_costs(checkpoint.saved_costs()),
        )
    except OSError as refused:
        raise CheckpointError(
            f"the checkpoint {checkpoint.location} cannot be read",
            why=refused.strerror or str(refused),
            fix="give this user the right to read it, or choose another: --checkpoint DIR",
        ) from refused


def _complete_costs(saved: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Return the costs with every figure: another version of Tailrace may have saved others."""
    names = {each.name for each in fields(engine.FunctionCost)}
    return {name: cost for name, cost in saved.items() if isinstance(cost, Mapping) and names <= cost.keys()}


def _capacity(own: SparkSession, slots: Slots | None, *, realtime: bool) -> Capacity:
    """Return Spark's task slots; in real time, wait for as many as the query needs."""
    required = slots.required if realtime and slots is not None else 0
    on_cluster = not (own.sparkContext.master or "").startswith("local")
    return await_capacity(lambda: engine.capacity(own), required, on_cluster=on_cluster)
