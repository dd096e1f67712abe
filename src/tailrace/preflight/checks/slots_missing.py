"""Fewer task slots than tasks: some partitions would never be read.

Anti-pattern:
    Starting a query on a topic of 4 partitions with ``--master local[2]``. In real time every task runs for as long as
    the query does, so two partitions wait for a slot that never becomes free. Spark reports no error.

Best practice:
    As many slots as tasks: the partitions of all sources, and the tasks after each shuffle. Leave ``--master`` away and
    Tailrace counts them; or choose ``local[N]``, fewer ``--shuffle-partitions``, or micro-batch.
"""

from collections.abc import Iterator

from tailrace.errors import counted
from tailrace.plan.slots import Slots, cores_for
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query

CODE = "SLOTS_MISSING"
_NAMED = 6


def check(query: Query) -> Iterator[Finding]:
    """Compare tasks with slots."""
    slots, capacity = query.slots, query.capacity
    if not query.realtime or slots is None or slots.required <= capacity.free:
        return
    taken = f", {capacity.taken} of them taken by other queries" if capacity.taken else ""
    yield error(
        CODE,
        f"real time needs {counted(slots.required, 'task slot')} and Spark has {capacity.slots}{taken}",
        why=f"all tasks run at once ({slots.sum_in_words}: {_stages(len(slots.stages))}); {_consequence(query)}",
        fix=" or ".join(_ways_out(query)),
    )


def _stages(count: int) -> str:
    return "source partitions" if count == 1 else "source partitions, then each shuffle"


def _consequence(query: Query) -> str:
    if query.shuffles:
        return "with fewer slots Spark refuses to start the query"
    unread = unread_partitions(query)
    if not unread:
        return "with fewer slots Spark would never read some partitions, without an error"
    named = ", ".join(unread[:_NAMED]) + (f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else "")
    return f"with fewer slots Spark would never read {named}, without an error"


def unread_partitions(query: Query) -> list[str]:
    """The partitions that would wait for ever: tasks get slots in their order, and keep them."""
    return list(query.tasks[query.capacity.free :])


def _ways_out(query: Query) -> list[str]:
    if query.slots is None:
        return []
    cores = cores_for(query.slots.required + query.capacity.taken, query.settings)
    ways = [f"--master 'local[{cores}]'" if query.master.startswith("local") else f"executors with {cores} cores"]
    each = _fitting_partitions(query, query.slots)
    if each > 0:
        pinned = query.saved is not None and query.saved.shuffle_partitions is not None
        ways.append(f"--shuffle-partitions {each}" + (" with a fresh checkpoint: --checkpoint DIR" if pinned else ""))
    return [*ways, *(["--mode microbatch"] if query.runs_in_microbatch else [])]


def _fitting_partitions(query: Query, slots: Slots) -> int:
    """The most tasks that each shuffle may have; those whose number the query says itself keep theirs."""
    following = query.shuffles - slots.fixed_shuffles
    return (query.capacity.free - slots.stages[0] - slots.fixed) // following if following else 0
