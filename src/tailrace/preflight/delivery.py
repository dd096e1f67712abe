"""Decides what a query can guarantee about its outputs after a crash, and says why not more."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.conditions.operators import operation_of
from tailrace.plan.delivery import AT_LEAST_ONCE, DeliveryPlan, FunctionPlan, Obstacle
from tailrace.plan.operator import Operator
from tailrace.plan.slots import reads_a_stream

_MOVES_ROWS = "it moves rows between tasks, so no task knows which of its records are done"
_MANY_RECORDS = "its rows do not come from one record each"
_UNKNOWN_RECORD = "its function may return rows in any order and number"
_OPERATIONS: Mapping[str, tuple[str, str]] = {
    "Aggregate": ("an aggregate", _MANY_RECORDS),
    "Distinct": ("distinct", _MANY_RECORDS),
    "Deduplicate": ("dropDuplicates", "it keeps state"),
    "DeduplicateWithinWatermark": ("dropDuplicatesWithinWatermark", "it keeps state"),
    "MapInPandas": ("mapInPandas", _UNKNOWN_RECORD),
    "MapInArrow": ("mapInArrow", _UNKNOWN_RECORD),
    "PythonUDTF": ("a Python table function", "it may return rows that belong to no record"),
    "Repartition": ("repartition or coalesce", _MOVES_ROWS),
    "RepartitionByExpression": ("repartition", _MOVES_ROWS),
    "RebalancePartitions": ("rebalance", _MOVES_ROWS),
    "Exchange": ("a shuffle", _MOVES_ROWS),
    "ShuffleExchange": ("a shuffle", _MOVES_ROWS),
    "BroadcastExchange": ("a join that broadcasts the stream", _MOVES_ROWS),
}
"""By the name of the plan's node: what a user calls it, and why its rows cannot be traced."""
_DECIDES = {
    "filter": "whether a row is written",
    "join": "which rows match",
    "generator": "how many rows are written",
    "topic": "to which topic a row goes",
    "table": "which rows a static table has",
}


@dataclass(frozen=True)
class Prevention:
    """Something that prevents a guarantee.

    Attributes:
        why: The reason.
        fix: What to do, as an imperative.
        where: The user's file, line and call, if they are known.
        of_progress: Whether it also prevents that progress is noted.
        surprises: Whether a user would not expect it, so that a start has to say it.
    """

    why: str
    fix: str
    where: str = ""
    of_progress: bool = False
    surprises: bool = True


OWN_WRITER = Prevention(
    "the outputs of a DataStreamWriter have no headers that identify them",
    "write the query as a tr.Pipeline",
    of_progress=True,
    surprises=False,
)


@dataclass(frozen=True)
class PipelineFacts:
    """What decides the guarantee of a pipeline.

    Attributes:
        function: The plan of its function.
        plan: Its physical plan; None if Spark cannot plan it.
        lineage: Whether its outputs carry their coordinates.
        uncontrolled: Why its batches cannot end on request; empty if they can.
        has_own_sink: Whether the engine's sink writes its outputs, if that is necessary in its mode.
        failures_become_letters: Whether a record on which a Python function fails becomes a dead letter.
        unreadable: The output topics that its user may not read, with what to do.
        compacted: The output topics that keep only the last record of each key.
    """

    function: FunctionPlan
    plan: Operator | None
    lineage: bool = True
    uncontrolled: str = ""
    has_own_sink: bool = True
    failures_become_letters: bool = False
    unreadable: Mapping[str, str] = field(default_factory=dict)
    compacted: Sequence[str] = ()


def preventions(facts: PipelineFacts) -> Iterator[Prevention]:
    """Yield what prevents the guarantees of a pipeline."""
    if not facts.lineage:
        yield Prevention(
            "with lineage=False nothing identifies an output",
            "remove lineage=False from the pipeline",
            of_progress=True,
        )
    if facts.uncontrolled or not facts.has_own_sink:
        yield Prevention(
            facts.uncontrolled or "Spark's own sink does not report acknowledgements",
            "run a release of Spark that this release of Tailrace knows",
            of_progress=True,
            surprises=False,
        )
    yield from _in_function(facts)
    yield from _in_plan(facts.plan)
    for topic, fix in facts.unreadable.items():
        yield Prevention(f"its user may not read the output topic {topic}, to see what is written already", fix)
    for topic in facts.compacted:
        yield Prevention(
            f"the output topic {topic} is compacted, so outputs that were written may be gone from it",
            f"set cleanup.policy=delete on {topic}",
        )


def may_keep_progress(found: Iterable[Prevention]) -> bool:
    """Return whether every row can be traced to its record."""
    return not any(each.of_progress for each in found)


def delivery_plan(
    found: Sequence[Prevention], asked: str | None, fingerprint: str | None = None, unknown: str = ""
) -> DeliveryPlan:
    """Return what a query guarantees.

    Args:
        found: What prevents guarantees.
        asked: The delivery that the options ask for.
        fingerprint: The fingerprint of the pipeline; None if it has none.
        unknown: Why it has none.
    """
    keeps_progress = may_keep_progress(found)
    worst = next((each for each in found if each.of_progress), next(iter(found), None))
    if worst is None and fingerprint is None:
        worst = Prevention(unknown, "let Python functions use only functions, classes and plain values of your own")
    if asked == AT_LEAST_ONCE:
        return DeliveryPlan(keeps_progress, effectively_once=False, reason="as asked", fingerprint=fingerprint)
    if worst is None:
        return DeliveryPlan(keeps_progress, effectively_once=True, fingerprint=fingerprint)
    return DeliveryPlan(
        keeps_progress,
        effectively_once=False,
        reason=worst.why,
        fingerprint=fingerprint,
        fix=worst.fix,
        where=worst.where,
        surprises=worst.surprises,
    )


def _in_function(facts: PipelineFacts) -> Iterator[Prevention]:
    for each in facts.function.obstacles:
        if each.kind == "operator":
            yield _operator(each.name, _place(each))
        elif each.kind == "foreign_stream":
            yield Prevention(
                "it reads a stream that is not one of the pipeline's sources",
                "read it with a KafkaSource of the pipeline",
                _place(each),
                of_progress=True,
            )
        elif each.kind == "varying":
            yield Prevention(
                f"{each.cause} gives another value each time, and decides {_DECIDES[each.name]}",
                f"use a value of the record instead of {each.cause}",
                _place(each),
            )
        elif each.kind == "table_order":
            yield Prevention(
                "a record may match several rows of a static table, which come in another order each time",
                "make the join's key unique in the table: table.dropDuplicates(['key'])",
                _place(each),
            )
        elif facts.failures_become_letters:
            yield Prevention(
                f"{each.name} is declared non-deterministic, and decides by failing whether a record becomes a result "
                "or a dead letter",
                "python_errors='fail', or remove asNondeterministic()",
                _place(each),
            )


def _in_plan(plan: Operator | None) -> Iterator[Prevention]:
    """Yield the shuffles that only Spark's planner adds."""
    if plan is None:
        yield Prevention("Spark cannot plan it", "see the errors of tailrace check", of_progress=True, surprises=False)
        return
    for node in plan.walk():
        is_moved = node.partitions is not None or node.name.startswith("BroadcastExchange")
        if is_moved and any(map(reads_a_stream, node.children)):
            yield _operator(node.name, f"{node.line} ({node.call})" if node.line and node.call else node.line)


def _operator(name: str, where: str) -> Prevention:
    operation, why = _OPERATIONS.get(name, (operation_of(name).name, _MANY_RECORDS))
    return Prevention(f"{operation}: {why}", f"remove {operation}", where, of_progress=True, surprises=False)


def _place(each: Obstacle) -> str:
    return f"{each.line} ({each.call})" if each.line and each.call else each.line
