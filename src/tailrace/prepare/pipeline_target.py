"""A ``tr.Pipeline`` as a target: its topics, its session, its query."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace import engine
from tailrace.checkpoint import Checkpoint, Owner, default_location
from tailrace.conditions.failures import translate_failure
from tailrace.errors import KafkaError, OptionRefused, TopicMissing
from tailrace.frames.pipeline import pipeline_frame
from tailrace.frames.sink import size_limits
from tailrace.frames.source import dead_letter_topic, record_schema, require_fitting_records
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.kafka.failures import user_of
from tailrace.kafka.rights import READ, WRITE, Rights, not_authorized, require_rights
from tailrace.kafka.topics import TopicFacts, first_missing_partitions
from tailrace.pipeline import KafkaSource, Pipeline
from tailrace.plan.delivery import DeliveryPlan
from tailrace.plan.operator import Operator
from tailrace.preflight.delivery import PipelineFacts, delivery_plan, may_keep_progress, preventions
from tailrace.prepare.endpoint import SERVERS, UNKNOWN_TOPIC, Endpoint
from tailrace.prepare.findings import Findings
from tailrace.prepare.fingerprint import fingerprint, fingerprint_settings
from tailrace.prepare.options import RunOptions
from tailrace.prepare.python_functions import install_functions
from tailrace.prepare.query_session import spark_for
from tailrace.prepare.target import Announce, BuiltQuery
from tailrace.prepare.topics import QueryTopics, SourceTopics, source_topics
from tailrace.spark_session import prelaunch_jvm

_CLEANUP = "cleanup.policy"
_MAX_MESSAGE_BYTES = 1024 * 1024
"""A little less than a broker's default for topics."""
_WITHOUT_DEAD_LETTERS = "name another topic with Pipeline(dead_letters=...), or choose malformed='drop' or 'fail'"


class PipelineTarget:
    """A pipeline.

    Args:
        pipeline: The pipeline.
        options: The options of the run.
        private: Whether the topics belong to a test: nobody else writes to them, and records that fit no schema are
            there on purpose.
    """

    def __init__(self, pipeline: Pipeline, options: RunOptions, *, private: bool = False) -> None:
        self.pipeline = from_the_beginning(pipeline) if options.once else pipeline
        self.name = pipeline.name
        self.rights_unknown: set[str] = set()
        self._private = private
        self._servers = resolve_bootstrap_servers(options.bootstrap_servers)
        self._topics = QueryTopics((None,) * len(self.pipeline.sources))
        self._facts: dict[str, TopicFacts] = {}
        self._rights: dict[str, Rights] = {}
        """What the user may do with the output topics."""
        self._spark: SparkSession | None = None
        self._missing: str | None = None
        """The dead-letter topic, if it has to be created."""

    def look_up(self, options: RunOptions, findings: Findings) -> None:
        """Ask for the topics of sink and sources; the JVM starts meanwhile."""
        prelaunch_jvm(options.conf, options.master)
        if self._sink.config is not None:
            findings.ask_broker(self._require_sink)
        if all(each.config is not None for each in self._sources):
            findings.ask_broker(self._require_sources)

    def checkpoint(self, options: RunOptions, _findings: Findings) -> Checkpoint:
        """Return the checkpoint that the options name, or the pipeline's own."""
        return Checkpoint(options.checkpoint or default_location(self.name))

    @property
    def owner(self) -> Owner:
        """The pipeline, identified by its existing topics; if they are unknown, by the topics that it names."""
        named = {name for source in self.pipeline.sources for name in source.topic_names}
        return Owner(self.name, self._topics.names or tuple(sorted(named)), self.pipeline.sink.in_words)

    @property
    def sources(self) -> int:
        """The number of its streaming sources."""
        return len(self._topics.sources)

    def tasks(self, most: int | None, reads: Sequence[int] = ()) -> int | None:
        """Return how many tasks read its sources; None if their partitions are unknown."""
        return self._topics.tasks(most, reads)

    def session(self, options: RunOptions, announce: Announce | None) -> tuple[SparkSession, bool]:
        """Return the running session, or start one."""
        return spark_for(options, self.tasks(options.source_tasks), announce)

    def look_up_by(self, spark: SparkSession, findings: Findings, checkpoint: Checkpoint) -> None:
        """Ask through Spark if only Spark can connect; look at dead letters and at the newest records."""
        self._spark = spark
        if self._sink.config is None:
            findings.ask_broker(self._require_sink)
        if self.tasks(None) is None and any(each.config is None for each in self._sources):
            findings.ask_broker(self._require_sources)
        findings.ask_broker(self._require_dead_letters)
        if not self._private and checkpoint.is_fresh() and self._topics.known:
            # Only before the first run: later, records that do not fit the schema follow the pipeline's ``malformed``.
            findings.ask_broker(self._require_fitting_records)

    def sink_facts(self) -> TopicFacts:
        """Return what the broker reports about the sink's topic."""
        topic = self.pipeline.sink.topic
        return self._facts_of(topic) if topic is not None else UNKNOWN_TOPIC

    def _facts_of(self, topic: str) -> TopicFacts:
        """Return what the broker reports about an output topic; it is asked once, however many plans are made."""
        if topic not in self._facts:
            self._facts[topic] = self._sink.facts(topic)
        return self._facts[topic]

    def create_topics(self, announce: Announce | None) -> None:
        """Create the dead-letter topic, if it is missing.

        Raises:
            KafkaError: It cannot be created or written to.
        """
        topic = self._missing
        if topic is None:
            return
        with self._about_dead_letters(topic):
            created = self._sink.create(topic)
        if created and announce is not None:
            announce(f"Created the topic {topic} for records that cannot be read.")
        self._require_writable(topic)

    def build(self, own: SparkSession, options: RunOptions) -> BuiltQuery:
        """Call the pipeline's function; its plan nodes remember the user's lines."""
        costs = install_functions(own, self.name, options, self.pipeline, self._servers)
        limits = size_limits(self.pipeline.sink, self._sink_limit())
        has_own_sink = options.realtime and engine.supports_own_sink(own)
        try:
            with engine.recorded_lines(own):
                frame = pipeline_frame(
                    self.pipeline,
                    own,
                    self._servers,
                    carries_python=costs is not None,
                    limits=None if has_own_sink else limits,
                )
        except PySparkException as refused:
            raise translate_failure(self.name, str(refused)) from refused
        sink = self.pipeline.sink
        writer = frame.rows.writeStream.format("kafka").options(**sink.options).options(**sink.destination)
        writer = writer.option(SERVERS, self._servers).outputMode("update")
        outputs = tuple(topic for topic in (sink.topic, self.pipeline.dead_letter_topic) if topic is not None)
        return BuiltQuery(
            self.name,
            frame.rows,
            writer,
            frame.counts,
            frame.reads,
            frame.lost,
            costs,
            outputs=outputs,
            sink=self._own_sink(own, limits) if has_own_sink else None,
            given=frame.given,
            returned=frame.returned,
        )

    def delivery(self, built: BuiltQuery, options: RunOptions, plan: Operator | None) -> DeliveryPlan | None:
        """Return what its function, its options and its topics allow."""
        if built.returned is None:
            raise AssertionError(f"{self.name}: a pipeline's function returns a DataFrame")
        function = engine.function_plan(built.returned, built.given, self.pipeline.sink.topic_column)
        facts = PipelineFacts(
            function,
            plan,
            self.pipeline.lineage,
            built.uncontrolled,
            has_own_sink=built.sink is not None or not options.realtime,
            failures_become_letters=self.pipeline.python_errors == "dead-letter",
            unreadable=self._unreadable(built.outputs),
            compacted=self._compacted(built.outputs),
        )
        found = list(preventions(facts))
        if not may_keep_progress(found):
            return delivery_plan(found, options.delivery)
        spark = built.returned.sparkSession
        known = fingerprint(self.pipeline, function, spark.version, fingerprint_settings(spark))
        return delivery_plan(found, options.delivery, known.value, known.why)

    def _unreadable(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the output topics that the user may not read, with what to do."""
        rights = {topic: self._rights.get(topic) for topic in topics}
        return {
            topic: not_authorized(READ, topic, self._sink.identity, held).fix
            for topic, held in rights.items()
            if held is not None and READ not in held
        }

    def _compacted(self, topics: Sequence[str]) -> tuple[str, ...]:
        """Return the output topics that keep only the last record of each key."""
        known = [topic for topic in topics if topic in self._rights]  # exists, on a broker that responds
        return tuple(each for each in known if "compact" in self._facts_of(each).settings.get(_CLEANUP, ""))

    def _own_sink(self, own: SparkSession, limits: engine.SizeLimits) -> engine.RealTimeSink:
        topic = self.pipeline.dead_letter_topic
        largest = limits.max_request_size
        if topic is not None:
            accepted = self._facts_of(topic).max_message_bytes if topic != self._missing else None
            largest = min(largest, accepted or _MAX_MESSAGE_BYTES)
        refused = dead_letter_topic(self.pipeline, self._servers)
        return engine.RealTimeSink(limits, refused, largest, engine.refused_counts(own, self.name))

    @property
    def _sources(self) -> list[Endpoint]:
        return [
            Endpoint.of({**source.options, **source.subscription, SERVERS: self._servers}, self._spark)
            for source in self.pipeline.sources
        ]

    @property
    def _sink(self) -> Endpoint:
        return Endpoint.of({**self.pipeline.sink.options, SERVERS: self._servers}, self._spark)

    def _require_sink(self) -> None:
        """Require the sink's topic and the permission to write; topics that a column names are unknown yet."""
        topic = self.pipeline.sink.topic
        if topic is not None:
            self._sink.partitions([topic])
            self._require_writable(topic)

    def _require_writable(self, topic: str) -> None:
        """Require the permission to write to an output topic, and note what else the user may do with it."""
        rights = self._sink.rights([topic])
        self._rights |= rights
        self.rights_unknown |= set(require_rights(self._sink.identity, WRITE, rights))

    def _require_sources(self) -> None:
        sources = zip(self.pipeline.sources, self._sources, strict=True)
        of_sources = tuple(self._source(source, endpoint) for source, endpoint in sources)
        for source, topics in zip(self.pipeline.sources, of_sources, strict=True):
            _require_every_offset(self.pipeline, source, topics.partitions)
        self._topics = QueryTopics(of_sources)
        self.rights_unknown |= self._topics.rights_unknown

    def _source(self, source: KafkaSource, endpoint: Endpoint) -> SourceTopics:
        topics = source_topics(endpoint)
        if topics is None:
            raise OptionRefused(
                f"the topics that match {source.pattern!r} cannot be listed",
                why="with a Java keystore (JKS) only Spark can connect, and it lists them only when the query runs",
                fix="name the topics: KafkaSource([...])",
            )
        if not topics.partitions:
            config = endpoint.config or {}
            hidden = f"; it does not list what {user_of(config)} may not describe" if "sasl.username" in config else ""
            raise TopicMissing(
                f"no topic matches {source.pattern!r}",
                why=f"the broker lists no such topic, and the start plans tasks for the partitions that exist{hidden}",
                fix="create the topic first, or correct the pattern",
            )
        return topics

    def _require_dead_letters(self) -> None:
        """Require that dead letters could be written, without creating their topic."""
        topic = self.pipeline.dead_letter_topic
        if topic is None:
            return
        with self._about_dead_letters(topic):
            try:
                self._sink.partitions([topic])
            except TopicMissing:
                self._sink.require_creatable(topic)
                self._missing = topic
                return
        self._require_writable(topic)

    @contextlib.contextmanager
    def _about_dead_letters(self, topic: str) -> Iterator[None]:
        """Say that an error is about the dead-letter topic, and how to run without one."""
        try:
            yield
        except KafkaError as refused:
            raise type(refused)(
                f"the dead-letter topic {topic!r} of pipeline {self.name!r} cannot be used",
                why=refused.why or refused.what,
                fix="; or ".join(filter(None, [refused.fix, _WITHOUT_DEAD_LETTERS])),
                detail=refused.detail,
            ) from refused

    def _require_fitting_records(self) -> None:
        """Refuse a schema that fits none of the newest records."""
        for source, endpoint, topics in zip(self.pipeline.sources, self._sources, self._topics.sources, strict=True):
            config = endpoint.config
            if config is not None and topics is not None:
                require_fitting_records(config, source, sorted(topics.partitions), record_schema(source))

    def _sink_limit(self) -> int | None:
        """Return the sink topic's ``max.message.bytes``; None if rows name their topic, or it is unknown."""
        return None if self.pipeline.sink.topic_column is not None else self.sink_facts().max_message_bytes


def from_the_beginning(pipeline: Pipeline) -> Pipeline:
    """Return the pipeline with sources that start at the earliest record instead of the next one."""
    sources = tuple(
        dataclasses.replace(source, starting="earliest") if source.starting == "latest" else source
        for source in pipeline.sources
    )
    return dataclasses.replace(pipeline, source=sources)


def _require_every_offset(pipeline: Pipeline, source: KafkaSource, partitions: Mapping[str, int]) -> None:
    """Refuse starting offsets that lack a partition, as Spark does once it runs."""
    if not isinstance(source.starting, Mapping):
        return
    missing: Sequence[str] = first_missing_partitions(source.starting_options["startingOffsets"], partitions)
    if missing:
        raise OptionRefused(
            f"starting= of pipeline {pipeline.name!r} has no offset for {', '.join(missing)}",
            why="Spark needs an offset for every partition of every topic",
            fix="add them; -2 is the earliest and -1 the latest offset",
        )
