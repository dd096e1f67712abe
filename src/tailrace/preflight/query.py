"""A query as the checks see it: plain data, gathered once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tailrace.pipeline import Mode
from tailrace.plan.operator import Call, Operator
from tailrace.plan.refusal import Refusal
from tailrace.plan.slots import Capacity, Slots
from tailrace.plan.streams import StreamRead, WriterSettings

PYTHON_NODES = ("BatchEvalPython", "ArrowEvalPython")
"""Spark's own operators of Python functions on columns."""

SCAN = "RealTimeStreamScan"
"""What reads a stream in real time."""
STATEFUL = ("StatefulStreamlineAggregate", "StateStoreSave", "StreamingDeduplicate", "StreamingSymmetricHashJoin")
"""How the names of operators with state begin."""


@dataclass(frozen=True)
class Saved:
    """What the query's checkpoint says.

    Attributes:
        location: Its folder.
        format: The version of its commit log; 0 where nothing was committed yet.
        shuffle_partitions: How many parts its state has; they cannot change.
        belongs_to: The query it belongs to, where that is another one.
        offsets: Where each source goes on, as Spark wrote it; none where nothing was committed yet.
        python: What each Python function cost in the last run, as :class:`tailrace.engine.FunctionCost` has it.
    """

    location: str
    format: int = 0
    shuffle_partitions: int | None = None
    belongs_to: str = ""
    offsets: tuple[str, ...] = ()
    python: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def switches(self) -> str:
        """Which modes may go on from it, in words; nothing where no batch was completed yet."""
        if self.format == 0:
            return ""
        which = "either mode may go on from it" if self.format > 1 else "only micro-batch may go on from it"
        return f"{self.location}, format {self.format}: {which}"


@dataclass(frozen=True)
class Query:
    """Everything that a check may ask.

    Attributes:
        name: The query's.
        mode: How it is to run.
        interval_ms: The checkpoint interval in real time, the trigger interval in micro-batch.
        plan: Its physical plan; None where Spark can make none.
        refusals: What Spark would refuse.
        tasks: The partition that each task of the sources would read, in the order in which tasks get slots.
        windows_s: How long its time windows are.
        calls: The DataFrame calls whose lines are known, the last one first.
        pivots: Whether it pivots.
        runs_in_microbatch: Whether Spark accepts it in micro-batch.
        reads: Its streaming sources.
        slots: The tasks of each stage; None where they are not known.
        capacity: What the running Spark has.
        master: Where that Spark runs.
        settings: Every setting that somebody chose, and Tailrace's own.
        sink: Where it writes.
        sink_topic_settings: The sink topic's own settings, as the broker tells them.
        sink_replicas: How many brokers keep a copy of each result; 0 where that is not known.
        saved: Its checkpoint.
        rights_unknown: The topics and groups of which a broker does not say whether this user may use them.
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

    @property
    def realtime(self) -> bool:
        """Whether it is to run in real time."""
        return self.mode is Mode.REALTIME

    @property
    def stateful(self) -> list[Operator]:
        """The plan's nodes that keep state from one batch to the next."""
        return list(self.operators(*STATEFUL))

    @property
    def python_nodes(self) -> list[Operator]:
        """The plan's nodes that hand a stream's rows to Python functions: the engine's, which name a path, and Spark's.

        A static table may be made by Python functions, too: no record waits for those.
        """
        found = [node for node in self.operators() if node.path or node.name in PYTHON_NODES]
        return [node for node in found if any(below.name.startswith(SCAN) for below in node.walk())]

    def operators(self, *names: str) -> Iterator[Operator]:
        """The plan's nodes whose name begins with one of these; all where none is given."""
        for node in self.plan.walk() if self.plan is not None else ():
            if not names or node.name.startswith(names):
                yield node

    def refused(self, condition: str) -> Iterator[Refusal]:
        """What Spark refuses under a name."""
        return (refusal for refusal in self.refusals if refusal.condition == condition)

    def setting(self, key: str) -> str:
        """A setting's value; empty where nobody chose one."""
        return self.settings.get(key, "")

    def or_microbatch(self, fix: str, how: str = "run with --mode microbatch") -> str:
        """A fix, and micro-batch as another if the query runs there."""
        return f"{fix}, or {how}" if self.runs_in_microbatch else fix

    @property
    def shuffles(self) -> int:
        """How often rows move between tasks."""
        if self.slots is not None:
            return len(self.slots.stages) - 1
        return sum(1 for node in self.operators() if node.partitions is not None)


def where(node: Operator | Refusal | Call) -> str:
    """The user's line, as far as it is known."""
    return f"{node.line} ({node.call})" if node.line and node.call else node.line
