"""Spark has fewer task slots than the query has tasks.

Problem:
    A query on a topic of 4 partitions starts with ``--master local[2]``. In real time every task runs as long as the
    query does, so two partitions wait for a slot that never becomes free. Spark reports no error.

Do this instead:
    Let partitions share tasks: ``--tasks N`` or ``--tasks auto``. Or provide as many slots as tasks: the partitions of
    all sources, and the tasks after each shuffle. Tailrace counts them if you omit ``--master``. Or use fewer
    ``--shuffle-partitions``, or micro-batch.
"""

from collections.abc import Iterator

from tailrace.conditions.checkpoints import WITH_FRESH_CHECKPOINT
from tailrace.conditions.spark import SLOTS_MISSING
from tailrace.errors import counted
from tailrace.plan.slots import Slots, cores_for
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = SLOTS_MISSING.code
_NAMED = 6


def check(query: Query) -> Iterator[Finding]:
    """Compare tasks with slots."""
    slots, capacity = query.slots, query.capacity
    if not query.realtime or slots is None or slots.required <= capacity.free:
        return
    message = SLOTS_MISSING.message(
        slots=counted(slots.required, "task slot"),
        available=capacity.slots,
        taken=f", {capacity.taken} of them taken by other queries" if capacity.taken else "",
    )
    yield error(
        CODE,
        message.what,
        why=f"{message.why} ({slots.formula}: {_stages(len(slots.stages))}); {_consequence(query)}",
        fix=" or ".join(_fixes(query, slots)),
    )


def _stages(count: int) -> str:
    return "source tasks" if count == 1 else "source tasks, then each shuffle"


def _consequence(query: Query) -> str:
    if query.capacity.slots == 0:
        return "no executor has registered: other applications may hold the cluster's cores or memory"
    if query.shuffles:
        return "with fewer slots Spark refuses to start the query"
    unread = unread_partitions(query)
    named = ", ".join(unread[:_NAMED]) or "some partitions"
    if len(unread) > _NAMED:
        named += f" and {len(unread) - _NAMED} more"
    return f"with fewer slots Spark never reads {named}, and reports no error"


def unread_partitions(query: Query) -> list[str]:
    """Return the partitions that would wait for ever: tasks get slots in their order, and keep them."""
    return list(query.tasks[query.capacity.free :])


def _fixes(query: Query, slots: Slots) -> list[str]:
    cores = cores_for(slots.required + query.capacity.taken, query.settings)
    if query.capacity.slots == 0:
        return [f"free {counted(cores, 'core')} on the cluster: an application without spark.cores.max takes all"]
    fixes = [f"--master 'local[{cores}]'" if query.master.startswith("local") else f"executors with {cores} cores"]
    if 0 < query.fitting_tasks < slots.stages[0] and not query.uncontrolled:
        fixes.insert(0, f"--tasks {query.fitting_tasks}")
    each = _fitting_partitions(query, slots)
    if each > 0:
        pinned = query.saved is not None and query.saved.shuffle_partitions is not None
        fixes.append(f"--shuffle-partitions {each}" + (f" {WITH_FRESH_CHECKPOINT}" if pinned else ""))
    return [*fixes, *(["--mode microbatch"] if query.runs_in_microbatch else [])]


def _fitting_partitions(query: Query, slots: Slots) -> int:
    """Return the most tasks that each shuffle may have; a shuffle with a fixed number keeps it."""
    following = query.shuffles - slots.fixed_shuffles
    return (query.capacity.free - slots.stages[0] - slots.fixed) // following if following else 0
