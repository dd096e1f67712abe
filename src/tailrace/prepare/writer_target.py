"""A ``DataStreamWriter`` or a streaming DataFrame as a target: queries that are not written as a pipeline."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.errors import DefinitionError, OptionRefused
from tailrace.kafka.rights import WRITE
from tailrace.kafka.topics import TopicFacts
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.operator import Operator
from tailrace.plan.streams import WriterSettings
from tailrace.preflight.delivery import OWN_WRITER, delivery_plan
from tailrace.preflight.query import STATEFUL
from tailrace.prepare.endpoint import SERVERS, UNKNOWN_TOPIC, Endpoint
from tailrace.prepare.findings import Findings
from tailrace.prepare.options import RunOptions
from tailrace.prepare.python_functions import install_functions
from tailrace.prepare.target import Announce, BuiltQuery
from tailrace.prepare.topics import QueryTopics, query_topics

NOWHERE = "memory:/no-checkpoint"
"""The location of a missing checkpoint: not on this machine, so nothing is read."""
UNNAMED = "query"


class FrameTarget:
    """A streaming DataFrame. It can be checked, not started: it has no sink."""

    def __init__(self, frame: DataFrame, options: RunOptions) -> None:
        _refuse_pipeline_options(options)
        if not frame.isStreaming:
            raise DefinitionError("this DataFrame is not a stream", fix="create it with spark.readStream")
        self.name = UNNAMED
        self.frame = frame
        self.rights_unknown: set[str] = set()
        self._topics = QueryTopics()

    def look_up(self, _options: RunOptions, findings: Findings) -> None:
        """Ask for the topics of its sources."""
        reads = engine.stream_reads(self.frame)
        self._topics = findings.ask(lambda: query_topics(reads, self.frame.sparkSession)) or QueryTopics()
        self.rights_unknown |= self._topics.rights_unknown

    def checkpoint(self, options: RunOptions, _findings: Findings) -> Checkpoint:
        """Return the checkpoint that the options name."""
        return Checkpoint(options.checkpoint or NOWHERE)

    @property
    def owner(self) -> Owner:
        """The query, by its topics."""
        return Owner(self.name, self._topics.names, "")

    @property
    def sources(self) -> int:
        """The number of its streaming sources."""
        return len(self._topics.sources)

    def tasks(self, most: int | None, reads: Sequence[int] = ()) -> int | None:
        """Return how many tasks read its sources; None if their partitions are unknown."""
        return self._topics.tasks(most, reads)

    def session(self, _options: RunOptions, _announce: Announce | None) -> tuple[SparkSession, bool]:
        """Return the session of the DataFrame, which cannot be restarted."""
        return self.frame.sparkSession, False

    def look_up_by(self, spark: SparkSession, findings: Findings, checkpoint: Checkpoint) -> None:
        """Ask nothing more: Spark was running from the beginning."""

    def sink_facts(self) -> TopicFacts:
        """Know nothing: a DataFrame has no sink."""
        return UNKNOWN_TOPIC

    def delivery(self, _built: BuiltQuery, options: RunOptions, _plan: Operator | None) -> DeliveryPlan | None:
        """Guarantee nothing: a DataFrame has no sink."""

    def create_topics(self, announce: Announce | None) -> None:
        """Create nothing: the topics are the user's."""

    def build(self, own: SparkSession, options: RunOptions) -> BuiltQuery:
        """Move the DataFrame to a session of its own."""
        install_functions(own, self.name, options)
        return BuiltQuery(self.name, engine.frame_on(self.frame, own))


class WriterTarget(FrameTarget):
    """A ``DataStreamWriter``, whatever its source and sink."""

    def __init__(self, writer: DataStreamWriter, options: RunOptions) -> None:
        super().__init__(engine.writer_frame(writer), options)
        self._writer = writer
        self._settings = engine.writer_settings(writer)
        self._given_name = self._settings.options.get("queryname")
        self.name = self._given_name or UNNAMED

    def look_up(self, options: RunOptions, findings: Findings) -> None:
        """Ask for the topics of its sources and its sink."""
        super().look_up(options, findings)
        findings.ask_broker(self._require_sink)

    def checkpoint(self, options: RunOptions, findings: Findings) -> Checkpoint:
        """Return the checkpoint that the options or the writer name, or the one that belongs to its name."""
        return Checkpoint(findings.ask(lambda: self._location(options)) or NOWHERE)

    def sink_facts(self) -> TopicFacts:
        """Return what the broker reports about the sink's topic."""
        sink = sink_endpoint(self._settings)
        return sink.facts(self._settings.options["topic"]) if sink is not None else UNKNOWN_TOPIC

    def delivery(self, _built: BuiltQuery, options: RunOptions, _plan: Operator | None) -> DeliveryPlan | None:
        """Return what every writer guarantees."""
        return delivery_plan([OWN_WRITER], options.delivery)

    @property
    def owner(self) -> Owner:
        """The query, by its topics and its sink."""
        sink = self._settings.options.get("topic", self._settings.format)
        return Owner(self.name, self._topics.names, sink)

    def build(self, own: SparkSession, options: RunOptions) -> BuiltQuery:
        """Move the writer and its DataFrame to a session of their own."""
        costs = install_functions(own, self.name, options)
        frame = engine.frame_on(self.frame, own)
        moved = engine.writer_of(self._writer, frame)
        return BuiltQuery(
            self.name,
            frame,
            _in_update_mode(moved, frame, options),
            costs=costs,
            microbatch_output=self._settings.output_mode,
            outputs=(self._settings.options["topic"],) if sink_endpoint(self._settings) is not None else (),
        )

    def _location(self, options: RunOptions) -> str:
        location = options.checkpoint or self._settings.options.get("checkpointlocation")
        if location is None and self._given_name is None:
            raise DefinitionError(
                "the query has neither a name nor a checkpoint",
                why="Tailrace finds the saved progress of a query by one of them",
                fix='.queryName("payments") or .option("checkpointLocation", DIR) on the writer',
            )
        return str(location or default_location(self.name))

    def _require_sink(self) -> None:
        """Require the topic that the writer names and the permission to write to it."""
        sink = sink_endpoint(self._settings, self.frame.sparkSession)
        if sink is not None:
            topic = self._settings.options["topic"]
            sink.partitions([topic])
            self.rights_unknown |= set(sink.require(WRITE, [topic]))


def sink_endpoint(settings: WriterSettings | None, spark: SparkSession | None = None) -> Endpoint | None:
    """Return the endpoint of a Kafka sink with one topic; None for any other sink."""
    if settings is None or settings.format != "kafka" or not {"topic", SERVERS} <= settings.options.keys():
        return None
    return Endpoint.of(settings.options, spark)


def _in_update_mode(writer: DataStreamWriter, frame: DataFrame, options: RunOptions) -> DataStreamWriter:
    """Return the writer in update mode if real time needs it and the query keeps no state, so nothing changes."""
    output_mode = engine.writer_settings(writer).output_mode.lower()
    if not options.realtime or output_mode != "append":
        return writer
    plan = engine.examine(frame, output_mode="append").plan
    stateful = plan is None or any(node.name.startswith(STATEFUL) for node in plan.walk())
    return writer if stateful else writer.outputMode("update")


def _refuse_pipeline_options(options: RunOptions) -> None:
    """Refuse options that a DataStreamWriter or DataFrame has fixed already."""
    if options.bootstrap_servers is not None:
        raise OptionRefused(
            "bootstrap_servers= is for a tr.Pipeline; a DataStreamWriter has its brokers already",
            fix='.option("kafka.bootstrap.servers", ...) on its reader and on the writer',
        )
    if options.master is not None:
        raise OptionRefused(
            "master= is for a tr.Pipeline; a DataStreamWriter has its Spark already",
            fix="tr.session(master=...) before you create the query",
        )
