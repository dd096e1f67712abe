"""A query as the checks see it: plain data, collected once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tailrace.conditions.condition import Condition, or_microbatch
from tailrace.conditions.operators import PYTHON_NODES
from tailrace.pipeline import Mode
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.loss import Loss
from tailrace.plan.operator import Call, Operator
from tailrace.plan.refusal import Refusal
from tailrace.plan.slots import Capacity, Slots, fitting_tasks
from tailrace.plan.streams import StreamRead, WriterSettings

SCAN = "RealTimeStreamScan"
"""The operator that reads a stream in real time."""
STATEFUL = (
    "StatefulStreamlineAggregate",
    "StateStoreSave",
    "StreamingDeduplicate",
    "StreamingSymmetricHashJoin",
    "TransformWithState",
)
"""The prefixes of the names of operators with state."""


@dataclass(frozen=True)
class Saved:
    """The content of the query's checkpoint.

    Attributes:
        location: Its folder.
        format: The version of its commit log; 0 if nothing is committed yet.
        shuffle_partitions: The number of partitions of its state, which cannot change.
        belongs_to: The query that owns it, if that is another one.
        offsets: The next offsets of each source, as Spark wrote them; empty if nothing is committed yet.
        committed: The number of the last completed batch; None if there is none.
        python: What each Python function cost in the last run, as in :class:`tailrace.engine.FunctionCost`.
    """

    location: str
    format: int = 0
    shuffle_partitions: int | None = None
    belongs_to: str = ""
    offsets: tuple[str, ...] = ()
    committed: int | None = None
    python: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def modes(self) -> str:
        """The modes that can continue it, as a sentence; empty if no batch is complete yet."""
        if self.format == 0:
            return ""
        modes = "both modes can continue it" if self.format > 1 else "only micro-batch can continue it"
        return f"{self.location}, format {self.format}: {modes}"


@dataclass(frozen=True)
class Query:
    """All facts about a query that the checks use.

    Attributes:
        name: Its name.
        mode: The mode to run it in.
        interval_ms: The checkpoint interval in real time, the trigger interval in micro-batch.
        plan: Its physical plan; None if Spark cannot plan it.
        refusals: What Spark would refuse.
        tasks: The partition that each source task would read, in the order in which tasks get slots.
        windows_s: The lengths of its time windows.
        calls: The user's DataFrame calls with a known line, the last one first.
        pivots: Whether it pivots.
        runs_in_microbatch: Whether Spark accepts it in micro-batch.
        reads: Its streaming sources.
        slots: The tasks of each stage; None if they are unknown.
        capacity: The slots of the running Spark.
        master: The master of that Spark.
        settings: Every explicit setting, the user's and Tailrace's.
        sink: Its writer.
        sink_topic_settings: The sink topic's settings, as the broker reports them.
        sink_replicas: The number of brokers with a copy of each result; 0 if unknown.
        saved: Its checkpoint.
        rights_unknown: The topics and groups for which the broker does not report this user's permissions.
        bounded: Whether it ends when it has read what is in the topics at its start.
        uncontrolled: Why its batches cannot end on request; empty if they can.
        losses: The records that it has not read and that are gone.
        delivery: What it can guarantee about its outputs after a crash; None if that is not known.
        wants_effectively_once: Whether the options ask for effectively-once delivery.
        progress_ms: How often it notes its progress in real time, if it can.
    """

    name: str
    mode: Mode
    interval_ms: int
    plan: Operator | None = None
    refusals: tuple[Refusal, ...] = ()
    tasks: tuple[str, ...] = ()
    windows_s: tuple[float, ...] = ()
    calls: tuple[Call, ...] = ()
    pivots: bool = False
    runs_in_microbatch: bool = True
    reads: tuple[StreamRead, ...] = ()
    slots: Slots | None = None
    capacity: Capacity = field(default_factory=lambda: Capacity(0))
    master: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    sink: WriterSettings | None = None
    sink_topic_settings: Mapping[str, str] = field(default_factory=dict)
    sink_replicas: int = 0
    saved: Saved | None = None
    rights_unknown: tuple[str, ...] = ()
    bounded: bool = False
    uncontrolled: str = ""
    losses: tuple[Loss, ...] = ()
    delivery: DeliveryPlan | None = None
    wants_effectively_once: bool = False
    progress_ms: int = 0

    @property
    def realtime(self) -> bool:
        """Whether the mode is real time."""
        return self.mode is Mode.REALTIME

    @property
    def repeated_ms(self) -> int:
        """The length of the time whose records it may write again after a crash in real time."""
        if self.delivery is None or not self.delivery.keeps_progress:
            return self.interval_ms
        return 0 if self.delivery.effectively_once else self.progress_ms

    @property
    def stateful(self) -> list[Operator]:
        """The plan's nodes that keep state from one batch to the next."""
        return list(self.operators(*STATEFUL))

    @property
    def python_nodes(self) -> list[Operator]:
        """The plan's nodes that send a stream's rows to Python functions: the engine's, which have a path, and Spark's.

        A static table may use Python functions, too: no record waits for those.
        """
        nodes = [node for node in self.operators() if node.path or node.name in PYTHON_NODES]
        return [node for node in nodes if any(below.name.startswith(SCAN) for below in node.walk())]

    def operators(self, *names: str) -> Iterator[Operator]:
        """Yield the plan's nodes whose name has one of these prefixes; all nodes if none is given."""
        for node in self.plan.walk() if self.plan is not None else ():
            if not names or node.name.startswith(names):
                yield node

    def refusals_of(self, condition: Condition) -> Iterator[Refusal]:
        """Yield what Spark refuses for a condition."""
        return (refusal for refusal in self.refusals if refusal.condition in condition.spark)

    def setting(self, key: str) -> str:
        """Return a setting's value; empty if it is not set."""
        return self.settings.get(key, "")

    def or_microbatch(self, fix: str) -> str:
        """Return a fix, with micro-batch as the alternative if the query runs there."""
        return or_microbatch(fix) if self.runs_in_microbatch else fix

    @property
    def fitting_tasks(self) -> int:
        """The most tasks that may read each source if all tasks are to fit into the slots."""
        if self.slots is None:
            return 0
        pinned = self.saved is not None and self.saved.shuffle_partitions is not None
        follow = not pinned and self.slots.shuffles_equal_source
        return fitting_tasks(self.slots, self.capacity.free, len(self.reads), shuffles_follow=follow)

    @property
    def progress(self) -> str:
        """What its checkpoint allows, as a sentence; empty if no batch is complete yet."""
        if self.saved is None or not self.saved.modes:
            return ""
        kept = self.saved.shuffle_partitions if self.shuffles else None
        return self.saved.modes + (f"; it keeps its {kept} shuffle partitions" if kept is not None else "")

    @property
    def shuffles(self) -> int:
        """The number of shuffles."""
        if self.slots is not None:
            return len(self.slots.stages) - 1
        return sum(1 for node in self.operators() if node.partitions is not None)


def where(node: Operator | Refusal | Call) -> str:
    """Return the user's line and call, as far as they are known."""
    return f"{node.line} ({node.call})" if node.line and node.call else node.line
