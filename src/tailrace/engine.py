"""Typed calls into Spark's JVM: planning a query without starting it, sessions of its own, a writer's settings.

With ``spark_session.py`` this is the only door to the JVM. Everything that comes out is plain Python data or a PySpark
object; no py4j object leaves this module.
"""

import contextlib
import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, GroupedData, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.errors import KafkaError, TopicMissing
from tailrace.kafka.client import java_client_options
from tailrace.kafka.topics import unreachable

_NOT_THE_USERS = (str(Path(pyspark.__file__).parent), str(Path(__file__).parent))


@dataclass(frozen=True)
class Operator:
    """A node of a physical plan."""

    name: str
    partitions: int | None
    """For an exchange of rows between tasks: how many tasks read it."""
    children: tuple["Operator", ...]
    refused: bool = False
    """Whether Spark refuses to run it in real time."""
    ranged: bool = False
    """For an exchange: whether rows are spread by ranges, which needs all of them first."""
    functions: tuple[str, ...] = ()
    """The names of the Python functions that it calls."""
    call: str = ""
    """The DataFrame method that made it, where that is known."""
    line: str = ""
    """Where the user called that, as ``file:line``."""

    def walk(self) -> Iterator["Operator"]:
        """This node and everything below it."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class Refusal:
    """Something that Spark would refuse to start, or to go on with."""

    condition: str
    """Spark's name for the error; empty where it has none."""
    message: str
    parameters: Mapping[str, str]
    call: str = ""
    line: str = ""


@dataclass(frozen=True)
class Examined:
    """What Spark would do with a query."""

    plan: Operator | None
    """None where no plan can be made of it."""
    refusals: tuple[Refusal, ...]
    tasks: tuple[str, ...] = ()
    """The partition that each task of the sources would read, in the order in which tasks get slots."""
    windows_s: tuple[float, ...] = ()
    """How long its time windows are."""


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


def capacity(spark: SparkSession) -> Capacity:
    """How many tasks Spark can run at the same time, and how many it runs now."""
    scala_context = spark.sparkContext._jsc.sc()
    profile = scala_context.resourceProfileManager().defaultResourceProfile()
    slots = int(scala_context.maxNumConcurrentTasks(profile))
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    taken = sum(stage.numActiveTasks for stage in stages if stage is not None)
    asked = spark.sparkContext.getConf().get("spark.executor.instances", "0") or "0"
    there = int(scala_context.getExecutorMemoryStatus().size()) - 1
    is_cluster = not spark.sparkContext.master.startswith("local")
    return Capacity(slots, taken, max(0, int(asked) - there) if is_cluster else 0)


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


def examine(
    frame: DataFrame,
    *,
    output_mode: str = "update",
    interval_ms: int = 0,
    sink: WriterSettings | None = None,
    ask: bool = False,
) -> Examined:
    """What Spark would do with a streaming query, found without starting it.

    Args:
        frame: What is written.
        output_mode: ``append``, ``update`` or ``complete``.
        interval_ms: How long a real-time batch lasts; 0 means micro-batch.
        sink: Where it goes, where that is known.
        ask: Whether the broker may be asked which tasks its topics make; it is waited for where it does not answer.
    """
    format_, options = (sink.format, dict(sink.options)) if sink is not None else (None, {})
    preflight = _tailrace(frame.sparkSession).Preflight
    told = json.loads(preflight.examine(frame._jdf, output_mode.lower(), format_, options, interval_ms, ask))
    refusals = tuple(Refusal(**refusal) for refusal in told["refusals"])
    plan = _operator(told["plan"]) if told["plan"] is not None else None
    return Examined(plan, refusals, tuple(told["tasks"]), tuple(told["windows_s"]))


@contextlib.contextmanager
def recorded_lines(spark: SparkSession) -> Iterator[None]:
    """Let what DataFrame calls add to a plan remember the user's line, while this lasts."""
    sites = _tailrace(spark).CallSites
    before = [
        (owner, name, method)
        for owner in (ClassicDataFrame, GroupedData)
        for name, method in vars(owner).items()
        if callable(method) and not name.startswith("_")
    ]
    for owner, name, method in before:
        setattr(owner, name, _recording(method, sites))
    try:
        yield
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)
        sites.nowhere()


def _recording(method: Callable[..., Any], sites: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        line = _users_line()
        if line is None:  # PySpark calls itself: the outer call has the line
            return method(*args, **kwargs)
        sites.at(method.__name__, line)
        try:
            return method(*args, **kwargs)
        finally:
            sites.nowhere()

    return call


def _users_line() -> str | None:
    """Where the caller's caller is, if that is neither PySpark nor Tailrace."""
    frame = sys._getframe(2)
    file = frame.f_code.co_filename
    if file.startswith(_NOT_THE_USERS):
        return None
    return f"{file}:{frame.f_lineno}"


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


def frame_on(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """The same query on another session."""
    plan = frame._jdf.queryExecution().logical()
    return DataFrame(_jvm(spark).org.apache.spark.sql.classic.Dataset.ofRows(_classic(spark), plan), spark)


def writer_on(writer: DataStreamWriter, spark: SparkSession) -> DataStreamWriter:
    """The same writer for the same query on another session, so that settings there stay with this query."""
    jvm = _jvm(spark)
    copy = frame_on(writer_frame(writer), spark).writeStream
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


@dataclass(frozen=True)
class StageTasks:
    """The tasks of a stage that runs."""

    total: int
    active: int
    done: int

    @property
    def waiting(self) -> int:
        """Those that have not got a slot yet."""
        return max(0, self.total - self.active - self.done)


def running_stages(query: StreamingQuery) -> list[StageTasks]:
    """The stages of a query that have tasks at work right now."""
    tracker = SparkSession.builder.getOrCreate().sparkContext.statusTracker()
    found = []
    for job in tracker.getJobIdsForGroup(query.runId):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            details = tracker.getStageInfo(stage)
            if details is not None and details.numActiveTasks > 0:
                found.append(StageTasks(details.numTasks, details.numActiveTasks, details.numCompletedTasks))
    return found


def has_running_tasks(query: StreamingQuery) -> bool:
    """Whether a job of this query has tasks at work right now."""
    return bool(running_stages(query))


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


def _operator(told: Mapping[str, Any]) -> Operator:
    """A plan node and those below it."""
    return Operator(
        told["name"],
        told["partitions"],
        tuple(_operator(child) for child in told["children"]),
        refused=told["refused"],
        ranged=told["ranged"],
        functions=tuple(told["functions"]),
        call=told["call"],
        line=told["line"],
    )


def _field(holder: Any, name: str) -> Any:
    """The value of a private field."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
