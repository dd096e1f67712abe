"""How many task slots a query needs.

In real time every task of every stage runs at the same time, for as long as the query runs: one task per source
partition, and one per partition of each shuffle. In micro-batch stages take turns and any number of slots will do.
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
    """Tasks after shuffles whose number the query itself says, and no setting."""
    fixed_shuffles: int = 0

    @property
    def required(self) -> int:
        """How many task slots real time needs."""
        return sum(self.stages)

    @property
    def sum_in_words(self) -> str:
        """The sum as a user can check it."""
        if len(self.stages) == 1:
            return str(self.required)
        return " + ".join(map(str, self.stages)) + f" = {self.required}"


@dataclass(frozen=True)
class Capacity:
    """How many tasks a Spark can run at the same time.

    Attributes:
        slots: Task slots, of all executors that are there.
        taken: How many of them run tasks now.
        executors_missing: Executors that were asked for and are not there yet.
    """

    slots: int
    taken: int = 0
    executors_missing: int = 0

    @property
    def free(self) -> int:
        """Slots that a new query would find."""
        return max(0, self.slots - self.taken)


def cores_for(tasks: int, settings: Mapping[str, str]) -> int:
    """How many cores give so many tasks a slot each; a task may take several, or a part of one."""
    return math.ceil(tasks * float(settings.get("spark.task.cpus") or 1))


def count_slots(plan: Operator, source_partitions: int) -> Slots:
    """Count the tasks of a streaming query.

    Args:
        plan: Its physical plan.
        source_partitions: The partitions of all its sources together.
    """
    shuffles = [(node.partitions, node.fixed) for node in plan.walk() if node.partitions and _reads_a_stream(node)]
    fixed = [partitions for partitions, is_fixed in shuffles if is_fixed]
    stages = (source_partitions, *(partitions for partitions, _ in reversed(shuffles)))
    return Slots(stages, sum(fixed), len(fixed))


def _reads_a_stream(node: Operator) -> bool:
    """Whether rows of a stream flow through a node; a static table is shuffled in a job of its own."""
    return any(below.name.startswith(_STREAM_LEAVES) for below in node.walk())
