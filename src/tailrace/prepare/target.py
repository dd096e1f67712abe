"""What can be prepared: a pipeline, a ``DataStreamWriter``, or a streaming DataFrame."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner
from tailrace.kafka.topics import TopicFacts
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.operator import Operator
from tailrace.prepare.findings import Findings
from tailrace.prepare.options import RunOptions

Announce = Callable[[str], None]


@dataclass(frozen=True)
class BuiltQuery:
    """A query on its own session, not started yet.

    Attributes:
        name: Its name.
        frame: The rows that it writes.
        writer: How it writes them; None for a DataFrame, which can only be checked.
        counts: The record counts of its sources.
        reads: How often it reads each source; empty if once.
        lost_lineage: What its outputs do not say about a record's origin, in words; empty if nothing is lost.
        costs: The costs of its Python functions, if the engine runs them.
        microbatch_output: Its output mode in micro-batch.
        uncontrolled: Why its batches cannot end on request; empty if they can.
        outputs: The topics that it writes to, as far as they are known before the start.
        sink: The engine's own sink, which replaces the writer's; None to write with Spark's.
        given: The rows of each source of a pipeline.
        returned: The rows that a pipeline's function made of them; None if the query is not a pipeline.
    """

    name: str
    frame: DataFrame
    writer: DataStreamWriter | None = None
    counts: tuple[engine.RecordCounts, ...] = ()
    reads: tuple[int, ...] = ()
    lost_lineage: str = ""
    costs: engine.FunctionCosts | None = None
    microbatch_output: str = "update"
    uncontrolled: str = ""
    outputs: tuple[str, ...] = ()
    sink: engine.RealTimeSink | None = None
    given: tuple[DataFrame, ...] = ()
    returned: DataFrame | None = None

    @property
    def watched(self) -> tuple[engine.RecordCounts | engine.FunctionCosts, ...]:
        """Every counter that listens while the query runs."""
        refused = [self.sink.counts] if self.sink is not None else []
        return (*self.counts, *refused, *([self.costs] if self.costs is not None else []))

    def controlled(
        self, *, realtime: bool, bounded: bool, tasks: int | None, fail_on_data_loss: bool | None
    ) -> "BuiltQuery":
        """Return the same query with batches that can end on request, if its sources allow that.

        Args:
            realtime: Whether it runs in real time.
            bounded: Whether it ends, in real time, when it has read what is in the topics at its start.
            tasks: The most tasks that read each source in real time; None for one task per partition.
            fail_on_data_loss: Whether it ends if records are gone; None to leave it to each source.
        """
        uncontrolled = engine.uncontrolled(self.frame, realtime=realtime)
        frame = self.frame
        if fail_on_data_loss is not None:
            frame = engine.with_data_loss(frame, fails=fail_on_data_loss)
        if not uncontrolled:
            frame = engine.control_sources(frame, bounded=bounded, tasks=tasks)
        writer = engine.writer_of(self.writer, frame) if self.writer is not None else None
        return replace(self, frame=frame, writer=writer, uncontrolled=uncontrolled)


class Target(Protocol):
    """A query that can be prepared. One instance serves one preparation."""

    name: str
    rights_unknown: set[str]
    """Topics whose access rights a broker does not report."""

    def look_up(self, options: RunOptions, findings: Findings) -> None:
        """Ask the brokers for its topics, as far as that needs no Spark."""

    def checkpoint(self, options: RunOptions, findings: Findings) -> Checkpoint:
        """Return its checkpoint."""

    @property
    def owner(self) -> Owner:
        """The owner of its checkpoint."""

    @property
    def sources(self) -> int:
        """The number of its streaming sources."""

    def tasks(self, most: int | None, reads: Sequence[int] = ()) -> int | None:
        """Return how many tasks read its sources; None if their partitions are unknown.

        Args:
            most: The most tasks that read each source; None for one task per partition.
            reads: How often the query reads each source; empty if once, or if that is not known yet.
        """

    def session(self, options: RunOptions, announce: Announce | None) -> tuple[SparkSession, bool]:
        """Return the session to clone, and whether its context may be restarted with more slots."""

    def look_up_by(self, spark: SparkSession, findings: Findings, checkpoint: Checkpoint) -> None:
        """Ask the brokers for everything that needs a running Spark."""

    def sink_facts(self) -> TopicFacts:
        """Return what the broker reports about its sink's topic."""

    def delivery(self, built: BuiltQuery, options: RunOptions, plan: Operator | None) -> DeliveryPlan | None:
        """Return what it can guarantee about its outputs after a crash; None if it has none.

        Args:
            built: The query, as built for these options.
            options: The options of the run.
            plan: Its physical plan; None if Spark cannot plan it.
        """

    def create_topics(self, announce: Announce | None) -> None:
        """Create the topics that it needs and that are missing."""

    def build(self, own: SparkSession, options: RunOptions) -> BuiltQuery:
        """Build the query on a session of its own."""
