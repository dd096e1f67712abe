"""Typed calls into Spark's JVM: planning a query without starting it, sessions of its own, a writer's settings.

With ``spark_session.py`` this is the only door to the JVM. Everything that comes out is plain Python data or a PySpark
object; no py4j object leaves this module.
"""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.errors import KafkaError, TopicMissing
from tailrace.kafka.client import java_client_options
from tailrace.kafka.topics import unreachable


@dataclass(frozen=True)
class Operator:
    """A node of a physical plan."""

    name: str
    partitions: int | None
    """For an exchange of rows between tasks: how many tasks read it."""
    children: tuple["Operator", ...]

    def walk(self) -> Iterator["Operator"]:
        """This node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class StreamRead:
    """A streaming source in a query, with the options it was made with."""

    format: str
    options: Mapping[str, str]


@dataclass(frozen=True)
class WriterSettings:
    """What a ``DataStreamWriter`` was told."""

    format: str
    output_mode: str
    options: Mapping[str, str]
    """By lower-case name, as Spark compares them."""


RECORD = "__tailrace_record"
"""The column in which the engine puts a record's content."""


class RecordCounts:
    """How many records a running query has read, in all tasks that have ended so far."""

    def __init__(self, check: Any) -> None:
        self._check = check

    def watch(self) -> None:
        """Count from now on also what tasks had counted that are stopped."""
        self._check.killed().open()

    def uses(self, frame: DataFrame) -> int:
        """How often a frame reads the source that is counted."""
        return int(_tailrace(frame.sparkSession).Records.uses(frame._jdf, self._check))

    def malformed(self) -> dict[str, int]:
        """The records that could not, by reason."""
        return {reason: number for reason, number in sorted(self._value().items()) if reason}

    def settle(self) -> None:
        """Wait until the counts of tasks that were stopped have arrived."""
        self._check.killed().settle(2000)

    def close(self) -> None:
        """Watch no more."""
        self._check.killed().close()

    def _value(self) -> dict[str, int]:
        return {str(reason): int(number) for reason, number in dict(self._check.counts().value()).items()}


def malformed_in_all(every: Iterable[RecordCounts]) -> dict[str, int]:
    """The records that could not be read, by reason, of several sources together."""
    total: Counter[str] = Counter()
    for counts in every:
        total.update(counts.malformed())
    return dict(total)


@dataclass(frozen=True)
class RecordCheck:
    """How records are read, and what happens to one that cannot be.

    Attributes:
        format: ``json``, ``string`` or ``bytes``.
        schema: The columns in a record, as JSON.
        json_options: Options of Spark's JSON reader.
        policy: ``dead-letter``, ``drop`` or ``fail``.
        pipeline: The pipeline's name, for dead letters.
        dead_letter_topic: Their topic.
        producer: The configuration of the Kafka producer that writes them.
    """

    format: str
    schema: str
    json_options: Mapping[str, str]
    policy: str
    pipeline: str
    dead_letter_topic: str | None
    producer: Mapping[str, str] = field(repr=False)


def read_records(raw: DataFrame, check: RecordCheck) -> tuple[DataFrame, RecordCounts]:
    """The good records of a frame read from Kafka, their content in the column ``RECORD``, and the counts of all."""
    spark = raw.sparkSession
    records = _tailrace(spark).Records
    made = records.check(
        _classic(spark),
        check.format,
        check.schema,
        dict(check.json_options),
        check.policy,
        check.pipeline,
        check.dead_letter_topic,
        dict(check.producer),
    )
    return DataFrame(records.read(raw._jdf, made), spark), RecordCounts(made)


def carry_lineage(frame: DataFrame) -> DataFrame:
    """The same rows with the hidden columns of their records, as far as its operators can carry them."""
    return DataFrame(_tailrace(frame.sparkSession).Lineage.carry(frame._jdf), frame.sparkSession)


def with_lineage_headers(frame: DataFrame, into: str, own: str | None) -> DataFrame:
    """The frame with a column of Kafka headers instead of its hidden columns and of the user's headers in ``own``."""
    made = _tailrace(frame.sparkSession).Lineage.withHeaders(frame._jdf, into, own)
    return DataFrame(made, frame.sparkSession)


@dataclass(frozen=True)
class TaskTimes:
    """When the tasks of a batch started and ended, in milliseconds of the wall clock."""

    submitted: int
    first_start: int
    last_start: int
    first_end: int
    last_end: int


class BatchTimes:
    """Notes when the tasks of a query's batches start and end, from now on."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._times = _tailrace(spark).BatchTimes(spark.sparkContext._jsc.sc(), str(query.id))
        self._times.open()

    def of(self, batch: int) -> TaskTimes | None:
        """A batch's; None where it is not known."""
        found = list(self._times.of(batch))
        return TaskTimes(*map(int, found)) if found else None


class BatchWatch:
    """Knows which batch of a query runs, and can end the query after it."""

    def __init__(self, query: StreamingQuery) -> None:
        spark = SparkSession.builder.getOrCreate()
        self._watch = _tailrace(spark).BatchWatch(spark.sparkContext._jsc.sc(), query._jsq)
        self._watch.open()

    def end_after(self, completed: int) -> bool:
        """Let the query complete the batch after the given one and then end; False where that has not begun yet."""
        return bool(self._watch.endAfter(completed))

    def has_ended(self) -> bool:
        """Whether a query that was told to end has done so; it calls itself inactive before that."""
        return bool(self._watch.hasEnded())

    def close(self) -> None:
        """Watch no more."""
        self._watch.close()


def clone_session(spark: SparkSession) -> SparkSession:
    """A session with the same views and settings whose later settings are its own."""
    return SparkSession(spark.sparkContext, _classic(spark).cloneSession())


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """Every setting that was set on a session or its context, by anyone; defaults are not among them."""
    settings: Any = spark.conf.getAll
    return dict(settings)


def has_kafka_connector(spark: SparkSession) -> bool:
    """Whether Spark can read and write Kafka."""
    provider = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
    loader = _jvm(spark).java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(provider.replace(".", "/") + ".class") is not None


def task_slots(spark: SparkSession) -> int:
    """How many tasks Spark can run at the same time."""
    scala_context = spark.sparkContext._jsc.sc()
    profile = scala_context.resourceProfileManager().defaultResourceProfile()
    return int(scala_context.maxNumConcurrentTasks(profile))


def kafka_partitions(spark: SparkSession, options: Mapping[str, str], topics: Sequence[str]) -> dict[str, int]:
    """How many partitions each topic has, asked through Spark's own Kafka client.

    For brokers that only the Java client can reach, such as those behind a Java key store.

    Raises:
        BrokerUnreachable: It did not answer.
        TopicMissing: It does not have a topic.
    """
    with _kafka_admin(spark, options) as admin:
        answer = admin.describeTopics(list(topics)).allTopicNames().get(5, _seconds(spark))
        return {topic: int(answer.get(topic).partitions().size()) for topic in topics}


def create_kafka_topic(spark: SparkSession, options: Mapping[str, str], topic: str) -> bool:
    """Make a topic through Spark's own Kafka client; return False where it is there already.

    Raises:
        BrokerUnreachable: It did not answer, or did not make it.
    """
    with _kafka_admin(spark, options) as admin:
        if admin.listTopics().names().get(5, _seconds(spark)).contains(topic):
            return False
        jvm = _jvm(spark)
        by_default = jvm.java.util.Optional.empty()
        request = jvm.org.apache.kafka.clients.admin.NewTopic(topic, by_default, by_default)
        admin.createTopics([request]).all().get(15, _seconds(spark))
    return True


def streaming_plan(frame: DataFrame) -> Operator:
    """The physical plan of a streaming query, made without starting it."""
    spark = frame.sparkSession
    jvm = _jvm(spark)
    streaming = jvm.org.apache.spark.sql.execution.streaming
    random_id = jvm.java.util.UUID.randomUUID
    empty_map = jvm.scala.collection.mutable.HashMap
    execution = streaming.runtime.IncrementalExecution(
        _classic(spark),
        frame._jdf.queryExecution().analyzed(),
        jvm.org.apache.spark.sql.streaming.OutputMode.Update(),
        "<planning>",
        random_id(),
        random_id(),
        0,
        jvm.scala.Option.empty(),
        streaming.checkpointing.OffsetSeqMetadata.apply(0, 0, jvm.PythonUtils.toScalaMap({})),
        streaming.runtime.WatermarkPropagator.noop(),
        False,  # isFirstBatch: true would write state schemas into the checkpoint
        empty_map(),
        empty_map(),
        jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP(),
        False,
        False,
    )
    return _operator(execution.executedPlan())


def stream_reads(frame: DataFrame) -> list[StreamRead]:
    """The streaming sources that a DataFrame reads."""
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    reads = []
    for leaf in _elements(leaves):
        if not leaf.getClass().getSimpleName().startswith("StreamingRelation"):
            continue
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            options = dict(leaf.extraOptions().asCaseSensitiveMap())
            reads.append(StreamRead(str(leaf.sourceName()), options))
        else:
            reads.append(StreamRead(str(leaf.sourceName()), {}))
    return reads


def writer_frame(writer: DataStreamWriter) -> DataFrame:
    """The DataFrame that a writer writes."""
    frame: DataFrame = writer._df
    return frame


def with_trigger(writer: DataStreamWriter, *, realtime: bool, interval_ms: int, once: bool) -> DataStreamWriter:
    """The writer with the trigger of a mode. PySpark's type stubs do not know the real-time one yet."""
    if once and not realtime:
        return writer.trigger(availableNow=True)
    trigger: Any = writer.trigger
    interval = f"{interval_ms} milliseconds"
    triggered: DataStreamWriter = trigger(realTime=interval) if realtime else trigger(processingTime=interval)
    return triggered


def writer_settings(writer: DataStreamWriter) -> WriterSettings:
    """What a writer was told so far. Spark keeps it in private fields and offers no other way to ask."""
    writes = writer._jwrite
    options = _field(writes, "extraOptions")
    pairs = {str(pair._1()).lower(): str(pair._2()) for pair in _elements(options.toSeq())}
    return WriterSettings(str(_field(writes, "source")), str(_field(writes, "outputMode")), pairs)


def writer_on(writer: DataStreamWriter, spark: SparkSession) -> DataStreamWriter:
    """The same writer for the same query on another session, so that settings there stay with this query."""
    frame = writer_frame(writer)
    jvm = _jvm(spark)
    plan = frame._jdf.queryExecution().logical()
    moved = jvm.org.apache.spark.sql.classic.Dataset.ofRows(_classic(spark), plan)
    copy = DataFrame(moved, spark).writeStream
    for each in writer._jwrite.getClass().getDeclaredFields():
        if each.getName() == "ds" or jvm.java.lang.reflect.Modifier.isStatic(each.getModifiers()):
            continue
        each.setAccessible(True)
        each.set(copy._jwrite, each.get(writer._jwrite))
    return copy


def save(writer: DataFrameWriter) -> str | None:
    """Write a batch; return everything Spark says about why that failed, or None where nothing went wrong."""
    try:
        writer.save()
    except (PySparkException, Py4JError) as failed:
        return str(failed)
    return None


def failure_text(query: StreamingQuery) -> str | None:
    """Everything Spark says about why a query ended, or None where nothing went wrong."""
    failed = query.exception()
    if failed is None:
        return None
    cause = query._jsq.exception().get()
    trace = _jvm(SparkSession.builder.getOrCreate()).org.apache.spark.util.Utils.exceptionString(cause)
    return f"{failed}\n{trace}"


def has_running_tasks(query: StreamingQuery) -> bool:
    """Whether a job of this query has tasks at work right now."""
    tracker = SparkSession.builder.getOrCreate().sparkContext.statusTracker()
    for job in tracker.getJobIdsForGroup(query.runId):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            details = tracker.getStageInfo(stage)
            if details is not None and details.numActiveTasks > 0:
                return True
    return False


def runs_in_real_time(query: StreamingQuery) -> bool:
    """Whether the plan that is running reads its source continuously."""
    execution = query._jsq.streamingQuery().lastExecution()
    return execution is not None and "RealTimeStreamScan" in str(execution.executedPlan().toString())


@contextlib.contextmanager
def _kafka_admin(spark: SparkSession, options: Mapping[str, str]) -> Iterator[Any]:
    """Spark's own Kafka client for questions about topics; what it refuses is an error about the broker."""
    jvm = _jvm(spark)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(java_client_options(options))
    except (PySparkException, Py4JError) as refused:
        raise _unanswered(options, refused) from refused
    try:
        yield admin
    except (PySparkException, Py4JError) as failed:
        raise _unanswered(options, failed) from failed
    finally:
        admin.close(jvm.java.time.Duration.ZERO)


def _seconds(spark: SparkSession) -> Any:
    return _jvm(spark).java.util.concurrent.TimeUnit.SECONDS


def _unanswered(options: Mapping[str, str], failed: Exception) -> KafkaError:
    """The error for a broker that gave Spark's Kafka client no answer; options hold secrets, so none is repeated."""
    java_error = getattr(failed, "java_exception", None)
    reason = str(java_error.toString() if java_error is not None else failed).strip().splitlines()[0]
    if "UnknownTopicOrPartition" in reason:
        return TopicMissing("a topic of this source does not exist", why=reason, fix="make it, or correct its name")
    return unreachable(options.get("kafka.bootstrap.servers", "the given address"), reason)


def _jvm(spark: SparkSession) -> Any:
    return spark._jvm


def _tailrace(spark: SparkSession) -> Any:
    """The engine's own objects."""
    return _jvm(spark).org.apache.spark.sql.tailrace


def _classic(spark: SparkSession) -> Any:
    return spark._jsparkSession


def _elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def _operator(node: Any) -> Operator:
    """A plan node and those below it, as plain data."""
    name = str(node.nodeName())
    is_exchange = name == "Exchange"
    return Operator(
        name,
        int(node.outputPartitioning().numPartitions()) if is_exchange else None,
        tuple(_operator(child) for child in _elements(node.children())),
    )


def _field(holder: Any, name: str) -> Any:
    """The value of a private field."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
