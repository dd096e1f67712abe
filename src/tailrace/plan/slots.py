"""The number of task slots that a query needs.

In real time all tasks of all stages run at the same time, as long as the query runs: one task per source partition, or
fewer that share the partitions, and one per partition of each shuffle. In micro-batch stages run one after the other,
and one slot is enough.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.plan.operator import Operator

_STREAM_LEAVES = ("StreamingRelation", "RealTimeStreamScan", "MicroBatchScan")


@dataclass(frozen=True)
class Slots:
    """The tasks of each stage, source first."""

    stages: tuple[int, ...]
    fixed: int = 0
    """Tasks after shuffles whose number the query itself sets."""
    fixed_shuffles: int = 0

    @property
    def required(self) -> int:
        """The number of task slots that real time needs."""
        return sum(self.stages)

    @property
    def shuffles_equal_source(self) -> bool:
        """Whether each shuffle has as many tasks as the sources, apart from those whose number the query sets."""
        following = len(self.stages) - 1 - self.fixed_shuffles
        return sum(self.stages[1:]) - self.fixed == following * self.stages[0]

    @property
    def formula(self) -> str:
        """The sum of the stages, such as ``2 + 4 = 6``."""
        if len(self.stages) == 1:
            return str(self.required)
        return " + ".join(map(str, self.stages)) + f" = {self.required}"


@dataclass(frozen=True)
class Capacity:
    """The tasks that a Spark can run at the same time.

    Attributes:
        slots: The task slots of all registered executors.
        taken: The slots that run tasks now.
        executors_missing: Requested executors that have not registered yet.
    """

    slots: int
    taken: int = 0
    executors_missing: int = 0

    @property
    def free(self) -> int:
        """The slots that a new query can use."""
        return max(0, self.slots - self.taken)


def cores_for(tasks: int, settings: Mapping[str, str]) -> int:
    """Return the cores that this many tasks need; ``spark.task.cpus`` says how many each takes."""
    return math.ceil(tasks * float(settings.get("spark.task.cpus") or 1))


def count_slots(plan: Operator, source_tasks: int) -> Slots:
    """Count the tasks of a streaming query.

    Args:
        plan: Its physical plan.
        source_tasks: The number of tasks that read its sources.
    """
    shuffles = [(node.partitions, node.fixed) for node in plan.walk() if node.partitions and reads_a_stream(node)]
    fixed = [partitions for partitions, is_fixed in shuffles if is_fixed]
    stages = (source_tasks, *(partitions for partitions, _ in reversed(shuffles)))
    return Slots(stages, sum(fixed), len(fixed))


def fitting_tasks(slots: Slots, free: int, sources: int, *, shuffles_follow: bool) -> int:
    """Return the most tasks that may read each source if all tasks are to fit; less than 1 if not even one fits.

    Args:
        slots: The tasks of each stage.
        free: The slots that the query can use.
        sources: The number of its sources.
        shuffles_follow: Whether the tasks after a shuffle are as many as those that read the sources, unless the query
            sets their number.
    """
    following = len(slots.stages) - 1 - slots.fixed_shuffles if shuffles_follow else 0
    kept = slots.fixed if shuffles_follow else sum(slots.stages[1:])
    return (free - kept) // ((1 + following) * max(1, sources))


def reads_a_stream(node: Operator) -> bool:
    """Return whether a node gets rows of a stream; Spark shuffles a static table in its own job."""
    return any(below.name.startswith(_STREAM_LEAVES) for below in node.walk())
