"""The number of task slots that a query needs.

In real time all tasks of all stages run at the same time, as long as the query runs: one task per source partition,
and one per partition of each shuffle. In micro-batch stages run one after the other, and one slot is enough.
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


def count_slots(plan: Operator, source_partitions: int) -> Slots:
    """Count the tasks of a streaming query.

    Args:
        plan: Its physical plan.
        source_partitions: The number of partitions of all its sources.
    """
    shuffles = [(node.partitions, node.fixed) for node in plan.walk() if node.partitions and _reads_a_stream(node)]
    fixed = [partitions for partitions, is_fixed in shuffles if is_fixed]
    stages = (source_partitions, *(partitions for partitions, _ in reversed(shuffles)))
    return Slots(stages, sum(fixed), len(fixed))


def _reads_a_stream(node: Operator) -> bool:
    """Return whether a node gets rows of a stream; Spark shuffles a static table in its own job."""
    return any(below.name.startswith(_STREAM_LEAVES) for below in node.walk())
