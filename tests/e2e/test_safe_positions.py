"""Up to where a running query knows that the outputs of all records are at the broker."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pandas as pd
import pytest
from confluent_kafka import Producer
from conftest import Kafka, wait_until
from copies import Copy
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from python_kinds import doubling
from relay import Relay, relayed_kafka

import tailrace as tr
from tailrace.engine import RunControl
from tailrace.kafka.ports import LOOPBACK
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import log_ends
from tailrace.running.query import RunningQuery

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

PARTITIONS = 2
PER_SECOND = 500
DEADLY, DEADLY_ONCE = 2101, 2501
"""The worker that gets the first dies each time; with the second it dies once."""
FOLLOWS_S = 2.0
"""The longest delay of the safe position without faults: the machine may be busy."""


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Relay]]:
    with relayed_kafka(tmp_path_factory.mktemp("relayed")) as started:
        yield started


def is_malformed(number: int) -> bool:
    return number % 100 == 50


class Numbers:
    """Sends numbers to the partitions in turn until it is stopped; some records are malformed."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._config, self._topic = kafka.config, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _send(self) -> None:
        producer = Producer({**self._config, "linger.ms": 0, "enable.idempotence": True})
        began = time.monotonic()
        while not self._ended.wait(0.02):
            while self.sent < (time.monotonic() - began) * PER_SECOND:
                value = b"{" if is_malformed(self.sent) else json.dumps({"a": self.sent}).encode()
                producer.produce(self._topic, value, partition=self.sent % PARTITIONS)
                self.sent += 1
            producer.poll(0)
        assert producer.flush(20) == 0


@dataclass(frozen=True)
class Sample:
    at: float
    safe: dict[int, int]
    offsets: dict[int, int]
    ends: dict[str, dict[int, int]]
    """The ends of the output topics a moment later."""


class Samples:
    """Asks for the positions of a query ten times a second."""

    def __init__(self, kafka: Kafka, running: RunningQuery, outputs: list[str]) -> None:
        self._kafka, self._outputs = kafka, outputs
        self._control = RunControl(running.query)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.all: list[Sample] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.1):
            self.all.append(self.take())

    def take(self) -> Sample:
        positions = self._control.positions()
        safe = {each.partition: each.safe for each in positions}
        offsets = {each.partition: each.offset for each in positions}
        return Sample(time.monotonic(), safe, offsets, {topic: self._ends(topic) for topic in self._outputs})

    def _ends(self, topic: str) -> dict[int, int]:
        return dict(log_ends(self._kafka.config, {topic: PARTITIONS})[topic])

    def wait_until_all_is_safe(self, sent: int, timeout_s: float) -> None:
        wait_until(lambda: sum(self.take().safe.values()) == sent, timeout_s, f"{sent} records are safe")

    def batch(self) -> str:
        """What the driver keeps of the first batch."""
        return str(self._control._control.safePositions(0))


def outputs_of(kafka: Kafka, topics: list[str]) -> dict[int, list[tuple[str, int, int]]]:
    """Where the outputs of each number are."""
    places: dict[int, list[tuple[str, int, int]]] = {}
    for topic in topics:
        for record in read_records(kafka.config, topic):
            headers = {name: (value or b"").decode() for name, value in record.headers}
            number = int(headers["tailrace.offset"]) * PARTITIONS + int(headers["tailrace.partition"])
            places.setdefault(number, []).append((topic, record.partition, record.offset))
    return places


def check_samples(samples: list[Sample], outputs: dict[int, list[tuple[str, int, int]]]) -> None:
    """All outputs of the records below a safe position were at the broker."""
    for sample in samples:
        for source, safe in sample.safe.items():
            for offset in range(safe):
                for topic, partition, at in outputs.get(offset * PARTITIONS + source, []):
                    assert at < sample.ends[topic][partition], f"{source}@{offset} is not in {topic}, {safe} is safe"


def slowest_s(samples: list[Sample], before: int) -> float:
    """How long it took at most until an offset that the reader had reached was safe."""
    times = [
        next((later.at for later in samples if later.safe[source] >= offset), float("inf")) - sample.at
        for sample in samples
        for source, offset in sample.offsets.items()
        if offset * PARTITIONS < before
    ]
    return max(times)


def longest_functions(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """A filter, a Python function, an explode, and another Python function."""
    mark = folder / "died"

    def one(a: int) -> int:
        if a == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        if a == DEADLY_ONCE and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return a * 2

    def two(copies: pd.Series) -> pd.Series:
        return copies + 1

    def transform(rows: DataFrame) -> DataFrame:
        doubled = rows.where("a % 3 <> 0").withColumn("b", F.udf(one, "long", useArrow=False)("a"))
        copied = doubled.withColumn("copy", F.explode(F.array(F.col("a"), F.col("b"))))
        return copied.where("copy % 7 <> 0").withColumn("c", F.pandas_udf(two, "long")("copy"))

    return transform


def results_of(number: int) -> int:
    """How many outputs and dead letters a number has."""
    if is_malformed(number):
        return 1
    if number % 3 == 0:
        return 0
    return 1 if number == DEADLY else sum(copy % 7 != 0 for copy in (number, 2 * number))


@pytest.fixture
def start(kafka: Kafka, tmp_path: Path) -> Callable[..., RunningQuery]:
    def started(transform: Any, source: str, sink: str, dead: str, **more: Any) -> RunningQuery:
        servers = more.pop("servers", kafka.bootstrap_servers)
        read = tr.KafkaSource(source, "a long", starting="earliest")
        to_letters: Any = {"dead_letters": dead, "python_errors": "dead-letter"}
        pipeline = tr.Pipeline("safe", read, transform, tr.KafkaSink(sink), **to_letters)
        return tr.start(pipeline, "realtime", bootstrap_servers=servers, checkpoint=tmp_path / "pipeline", **more)

    return started


@pytest.mark.parametrize("tasks", ["one each", "shared"])
def test_it_follows_the_reader_and_never_passes_an_output_that_is_missing(
    kafka: Kafka, start: Callable[..., RunningQuery], tmp_path: Path, tasks: str
) -> None:
    source, sink, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    shared = {"tasks": 1} if tasks == "shared" else {}
    with (
        start(longest_functions(tmp_path), source, sink, dead, **shared) as running,
        Samples(kafka, running, [sink, dead]) as samples,
    ):
        with Numbers(kafka, source) as numbers:
            wait_until(lambda: numbers.sent > DEADLY_ONCE + PER_SECOND, 60, "the load is sent")
        samples.wait_until_all_is_safe(numbers.sent, 60)
        for partition in range(PARTITIONS):
            expected = len(range(partition, numbers.sent, PARTITIONS))
            assert f"(0,{source}-{partition}) -> {expected}" in samples.batch()
    assert (tmp_path / "died").exists()
    outputs = outputs_of(kafka, [sink, dead])
    assert all(len(outputs.get(each, [])) == results_of(each) for each in range(numbers.sent))
    check_samples(samples.all, outputs)
    waited = slowest_s(samples.all, DEADLY - PER_SECOND)
    print(f"safe after at most {waited:.2f} s in {len(samples.all)} samples")
    assert waited < FOLLOWS_S


def test_a_slow_function(kafka: Kafka, start: Callable[..., RunningQuery]) -> None:
    source, sink, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")

    def slow(values: pd.Series) -> pd.Series:
        time.sleep(0.5)
        return values

    def transform(rows: DataFrame) -> DataFrame:
        return rows.withColumn("b", F.pandas_udf(slow, "long")("a"))

    with start(transform, source, sink, dead) as running, Samples(kafka, running, [sink, dead]) as samples:
        with Numbers(kafka, source) as numbers:
            wait_until(lambda: numbers.sent > 5 * PER_SECOND, 60, "the load is sent")
        samples.wait_until_all_is_safe(numbers.sent, 30)
    check_samples(samples.all, outputs_of(kafka, [sink, dead]))
    behind = [sum(each.offsets.values()) - sum(each.safe.values()) for each in samples.all]
    assert max(behind) > 100, "the reader is ahead of the function"


def test_results_and_dead_letters_without_an_acknowledgement(
    relayed: tuple[Kafka, Relay], start: Callable[..., RunningQuery]
) -> None:
    kafka, relay = relayed
    source, sink, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    servers = f"{LOOPBACK}:{relay.port}"

    def filtered(rows: DataFrame) -> DataFrame:
        return rows.where("a % 10 = 3")

    with start(filtered, source, sink, dead, servers=servers) as running:
        samples = Samples(kafka, running, [sink, dead])
        kafka.send_to_every_partition(source, [{"a": number} for number in range(100)])
        samples.wait_until_all_is_safe(100, 30)
        for held, values in (("a result", [0, 0, 3, 0]), ("a dead letter", ["no number", 0, 0, 0])):
            before = samples.take()
            relay.acknowledges.clear()
            try:
                kafka.send_to_every_partition(source, [{"a": value} for value in values])
                wait_until(lambda: sum(samples.take().offsets.values()) == sum(before.offsets.values()) + 4, 20, "read")  # noqa: B023
                time.sleep(2)
                now = samples.take()
                assert now.safe[0] <= before.offsets[0] + (1 if held == "a result" else 0), held
                assert now.safe[1] == now.offsets[1], "the other partition has none"
            finally:
                relay.acknowledges.set()
            samples.wait_until_all_is_safe(sum(now.offsets.values()), 20)


def test_rows_that_cannot_be_traced(
    kafka: Kafka, start: Callable[..., RunningQuery], copy: Copy, spark: SparkSession
) -> None:
    """A map function does not say where its rows come from, and Spark's sink not what is acknowledged."""
    source, sink, dead = kafka.topic("in"), kafka.topic("out"), kafka.topic("dead")
    kafka.send_to_every_partition(source, [{"a": number} for number in range(20)])
    with start(doubling("map-pandas", lambda value: value), source, sink, dead) as running:
        kafka.receive_count(sink, 20)
        assert {(each.offset, each.safe) for each in RunControl(running.query).positions()} == {(10, 0)}
    writer = copy.writer(copy.read(subscribe=source, startingOffsets="earliest"))
    with copy.start(writer, "realtime") as running:
        kafka.receive_count(copy.sink, 20)
        assert {(each.offset, each.safe) for each in RunControl(running.query).positions()} == {(10, 0)}


def test_spans(spark: SparkSession) -> None:
    """A row counts until the next one is asked for and nobody holds it."""
    jvm: Any = spark._jvm
    engine = jvm.org.apache.spark.sql.kafka010.tailrace
    contexts = jvm.java.lang.Class.forName("org.apache.spark.TaskContext$").getField("MODULE$").get(None)
    context = contexts.empty()

    def offsets(*numbers: int) -> Any:
        array = spark.sparkContext._gateway.new_array(jvm.long, len(numbers))
        for index, number in enumerate(numbers):
            array[index] = number
        return array

    task = engine.TaskProgress.of(context)
    reader = engine.ReaderProgress(task, offsets(10, 20))
    second = 1_000_000_000

    def safe() -> list[int]:
        return list(reader.safe())

    try:
        reader.asked(1 * second, offsets(10, 20))
        reader.asked(2 * second, offsets(11, 20))
        assert safe() == [10, 20], "nobody acknowledges results"
        task.acknowledge()
        assert safe() == [11, 20]
        result = engine.Flow.hold()  # of a record between 11 and 12
        letter = engine.Flow.hold()
        reader.asked(2 * second + 1, offsets(12, 20))
        assert safe() == [11, 20], "no new span so soon"
        reader.cut(2 * second + 2, offsets(12, 21))
        reader.cut(3 * second, offsets(12, 25))
        later = engine.Flow.hold()
        reader.cut(4 * second, offsets(14, 25))
        result.release()
        assert safe() == [11, 20], "the dead letter is not acknowledged"
        pending = engine.Flow()
        letter.hold()
        pending.begin(letter)
        letter.release()
        assert safe() == [11, 20], "its row is not done"
        pending.end()
        assert safe() == [12, 25]
        later.release()
        assert safe() == [14, 25]
        task.block()
        assert safe() == [10, 20]
    finally:
        context.markTaskCompleted(jvm.scala.Option.empty())
    assert not engine.TaskProgress.of(context).equals(task)
    assert engine.Flow.hold().toString().startswith("org.apache.spark.sql.kafka010.tailrace.Untraced")
