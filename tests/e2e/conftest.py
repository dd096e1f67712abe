"""Real parts for the end-to-end tests: one broker, one Spark, topics of each test's own."""

import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)
from copies import Copy
from shares import in_shares, read_seconds

from tailrace.cluster.cluster import Cluster, temporary_cluster
from tailrace.kafka.broker import Broker
from tailrace.kafka.client import client_config
from tailrace.kafka.topics import create_topic, partition_counts
from tailrace.spark_session import end_session, session
from tailrace.testing.bench import shared_bench
from tailrace.toolchain import cache_dir

TESTS = Path(__file__).parent

# Every JVM of these tests lives for seconds to minutes: the optimizing compiler took one processor second of four, more
# than it saved. Without it Java reserves little memory for compiled code, and would soon compile the same code again.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let all workers of a parallel run end at the same time."""
    workers: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workers is not None:
        order = in_shares([item.nodeid for item in items], int(workers["workercount"]), read_seconds())
        place = {test: number for number, test in enumerate(order)}
        items.sort(key=lambda item: place[item.nodeid])


@pytest.fixture(scope="session")
def broker() -> Broker:
    return shared_bench().broker


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers with four slots each; a program that runs on them takes all slots."""
    with temporary_cluster(lambda _: None) as started:
        yield started


@pytest.fixture(scope="session")
def spark(broker: Broker) -> Iterator[Any]:
    # 1 s instead of 5 s as the shortest checkpoint interval: a test then sees several of them.
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.realTimeMode.minBatchDuration": "1000"}
    yield session("tests", master=os.environ.get("TAILRACE_TEST_MASTER", "local[8]"), conf=conf)
    end_session()


@dataclass
class Kafka:
    """Topics of one test, and a way to fill and read them."""

    bootstrap_servers: str
    created: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        config = client_config(self.bootstrap_servers, {})
        assert config is not None
        return dict(config)

    def topic(self, name: str, partitions: int = 2) -> str:
        unique = f"{name}-{secrets.token_hex(4)}"
        create_topic(self.config, unique, partitions)
        self.created.append(unique)
        return unique

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions from now on."""
        admin = AdminClient(self.config)  # held by name: its answers die with it
        admin.create_partitions([NewPartitions(topic, total)])[topic].result(20)

    def compact(self, topic: str) -> None:
        """Let the broker compact a topic soon after each 0.1 s in which it got records."""
        (broker,) = AdminClient(self.config).list_topics(timeout=10).brokers
        self._configure(ResourceType.BROKER, str(broker), {"log.cleaner.backoff.ms": "100"})
        compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        self._configure(ResourceType.TOPIC, topic, compacted)

    def _configure(self, kind: ResourceType, name: str, values: dict[str, str]) -> None:
        admin = AdminClient(self.config)  # held by name: its answers die with it
        how = AlterConfigOpType.SET
        entries = [ConfigEntry(key, value, incremental_operation=how) for key, value in values.items()]
        (altered,) = admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values()
        altered.result(20)

    def send(self, topic: str, records: list[Any]) -> None:
        """Dictionaries go as JSON; bytes go as they are."""
        producer = Producer(self.config)
        for record in records:
            producer.produce(topic, record if isinstance(record, bytes) else json.dumps(record).encode())
        assert producer.flush(20) == 0

    def send_to_every_partition(self, topic: str, records: list[Any]) -> None:
        """In turn, so that none stays empty."""
        partitions = partition_counts(self.config, [topic])[topic]
        producer = Producer(self.config)
        for number, record in enumerate(records):
            producer.produce(topic, json.dumps(record).encode(), partition=number % partitions)
        assert producer.flush(20) == 0

    def receive(self, topic: str, until: Callable[[list[Any]], bool], timeout_s: float = 45) -> list[Any]:
        """Read a topic from its start until the records so far satisfy ``until``; return (key, parsed value) pairs."""
        consumer = Consumer({**self.config, "group.id": f"test-{secrets.token_hex(4)}", "enable.auto.commit": False})
        try:
            partitions = partition_counts(self.config, [topic])[topic]
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
            seen: list[Any] = []
            deadline = time.monotonic() + timeout_s
            while not until(seen):
                assert time.monotonic() < deadline, f"{topic}: only {len(seen)} records so far: {seen[-3:]}"
                message = consumer.poll(0.1)
                if message is not None and message.error() is None:
                    seen.append(((message.key() or b"").decode(), json.loads(message.value())))
            return seen
        finally:
            consumer.close()

    def receive_count(self, topic: str, count: int, timeout_s: float = 45) -> list[Any]:
        return self.receive(topic, lambda seen: len(seen) >= count, timeout_s)


@pytest.fixture
def kafka(broker: Broker) -> Kafka:
    return Kafka(broker.bootstrap_servers)


@pytest.fixture
def copy(spark: Any, kafka: Kafka, tmp_path: Path) -> Copy:
    return Copy(spark, kafka, tmp_path)


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A user's folders of the test's own, sharing the jars; whatever still runs there at the end is stopped."""
    (tmp_path / "cache").mkdir()
    for kept in ("jars", "java", "classes"):
        (tmp_path / "cache" / kept).symlink_to(cache_dir() / kept)
    mark = f"tailrace-test-{secrets.token_hex(8)}"
    env = {"TAILRACE_HOME": str(tmp_path), "TAILRACE_TEST_MARK": mark}
    yield env
    kill_marked(mark)


@pytest.fixture(params=["microbatch", "realtime"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Guarded(Protocol):
    """A broker, which is a child of the process that guards it."""

    @property
    def pid(self) -> int: ...


@contextmanager
def suspended(broker: Guarded) -> Iterator[None]:
    """The broker keeps its connections and answers nothing."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)
    try:
        yield
    finally:
        for child in children:
            os.kill(int(child), signal.SIGCONT)


def marked_processes(mark: str) -> dict[int, str]:
    """The live processes that inherited a mark in their environment, with their command lines."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                processes[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200]
        except OSError:
            continue
    return processes


def kill_marked(mark: str) -> None:
    """Kill the processes that inherited a mark; one may end by itself meanwhile."""
    for process in marked_processes(mark):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait for a condition; say what was waited for where it does not come."""
    asked_at = time.monotonic()
    deadline = asked_at + timeout_s
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(min(max(0.05, 2 * (now - asked_at)), 0.5))  # a condition that reads a topic needs processor time
        asked_at = time.monotonic()


def of_sparks_env(context: Any, name: str) -> Any:
    """Something of the JVM that Spark keeps for itself."""
    # Not by the object's own class: to look for its methods fails on those with classes that are not here.
    loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    field = loader.loadClass("org.apache.spark.SparkEnv").getDeclaredField(name)
    field.setAccessible(True)
    return field.get(context._jsc.sc().env())


def consumers_of_tasks(spark: Any, group_prefix: str) -> set[str]:
    """The open consumers, by their client ids, of the tasks whose source has this ``groupIdPrefix``."""
    gateway, jvm = spark.sparkContext._gateway, spark._jvm
    find_class, kinds = jvm.java.lang.Class.forName, gateway.new_array(jvm.java.lang.Class, 2)
    kinds[0], kinds[1] = (find_class(f"javax.management.{name}") for name in ("ObjectName", "QueryExp"))
    query = gateway.new_array(jvm.java.lang.Object, 2)
    query[0] = jvm.javax.management.ObjectName("kafka.consumer:type=app-info,id=*")
    # By the interface: the class of Java's own server is not open.
    ask = find_class("javax.management.MBeanServer").getMethod("queryNames", kinds)
    names = ask.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), query)
    ids = {str(each.getKeyProperty("id")) for each in names}
    return {each for each in ids if group_prefix in each and "-executor-" in each}
