"""Every output has a name that is its own, in both modes and in every run, and a guard drops those that exist."""

import json
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Kafka
from guards import Guards
from notes import change_note, note_of
from py4j.protocol import Py4JJavaError
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.kafka.broker import Broker
from tailrace.kafka.records import TopicRecord, read_records
from tailrace.kafka.topics import create_topic
from tailrace.prepare.options import RunOptions
from tailrace.prepare.prepare import prepare, target_of
from tailrace.running.run import run_query

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.timeout(300)]

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests

Ends: TypeAlias = Mapping[str, Mapping[int, int]]
COUNT = 300
COPIES = 3
"""The most results of a record, each for a topic of its own."""


def is_malformed(number: int) -> bool:
    return number % 11 == 5


def first(number: int) -> int:
    if number % 10 == 7:
        raise ValueError("no sevens")
    return number


def second(number: int, copy: int) -> int:
    if number % 10 == 8 and copy > 0:
        raise ValueError("no further copies of eights")
    return copy


def work(topics: str) -> Any:
    def transform(records: DataFrame) -> DataFrame:
        of_record, of_copy = F.udf(first, "long", useArrow=False), F.udf(second, "long", useArrow=False)
        kept = records.where("a % 5 <> 4").withColumn("b", of_record("a"))
        copies = kept.withColumn("copy", F.explode(F.sequence(F.lit(0), F.col("a") % COPIES)))
        checked = copies.withColumn("c", of_copy("a", "copy"))
        return checked.withColumn("to", F.concat(F.lit(f"{topics}-"), F.col("copy").cast("string")))

    return transform


def expected() -> Counter[tuple[str, str, int]]:
    """The outputs as topic, maker and record."""
    all_of: Counter[tuple[str, str, int]] = Counter()
    for number in range(COUNT):
        if is_malformed(number):
            all_of["dead", "r", number] += 1
        elif number % 5 != 4:
            if number % 10 == 7:
                all_of["dead", "p0", number] += 1
                continue
            for copy in range(number % COPIES + 1):
                fails = number % 10 == 8 and copy > 0
                all_of[("dead", "p1", number) if fails else (str(copy), "o", number)] += 1
    return all_of


@dataclass(frozen=True)
class Name:
    """The identity of an output."""

    query: str
    maker: str
    index: int
    source: int
    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: TopicRecord) -> "Name":
        headers = {name: (value or b"").decode() for name, value in record.headers}
        query, source, maker, index = headers["tailrace.id"].split(":")
        place = headers["tailrace.topic"], int(headers["tailrace.partition"]), int(headers["tailrace.offset"])
        return cls(query, maker, int(index), int(source), *place)

    @property
    def number(self) -> int:
        """The number in its record: partitions take turns."""
        return (self.offset - 1) * 2 + self.partition


@dataclass(frozen=True)
class Again:
    """A run after a crash: its checkpoint, and what its start has announced."""

    checkpoint: Path
    announced: list[str]

    @property
    def guarded(self) -> int:
        """How many outputs it knew to exist."""
        counts = [int(line.split()[0]) for line in self.announced if "exist and will not be repeated" in line]
        return sum(counts)

    @property
    def noted(self) -> set[str]:
        """The topics whose ends it has noted."""
        return set(json.loads(note_of(self.checkpoint)["ends"]))


def run(pipeline: tr.Pipeline, kafka: Kafka, mode: str, checkpoint: Path) -> list[str]:
    """Process everything; return what the start has announced."""
    announced: list[str] = []
    run_query(pipeline, options(kafka, mode, checkpoint), announce=announced.append)
    return announced


def options(kafka: Kafka, mode: str, checkpoint: Path) -> RunOptions:
    servers = kafka.bootstrap_servers
    return RunOptions(mode, bootstrap_servers=servers, checkpoint=checkpoint, once=True)  # type: ignore[arg-type]


def note_crash(checkpoint: Path, pipeline: tr.Pipeline, kafka: Kafka, ends: Ends) -> None:
    """Let the last run of a checkpoint look like a crashed one of this pipeline."""
    given = options(kafka, "realtime", checkpoint)
    with prepare(target_of(pipeline, given), given, dry_run=True) as prepared:
        same = prepared.delivery.fingerprint
    of_topics = {topic: {str(at): end for at, end in its.items()} for topic, its in ends.items()}
    change_note(checkpoint, isClosed=False, fingerprint=same, ends=json.dumps(of_topics))


class Case:
    """A pipeline with every kind of output, and a checkpoint from before its records."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.kafka = Kafka(broker.bootstrap_servers)
        self.folder = folder
        self.source = self.kafka.topic("in", 2)
        self.name = f"named-{secrets.token_hex(4)}"
        self.send([b'{"a": 4}', b'{"a": 4}'])  # filtered out
        self.run(self.topics(), "microbatch", folder / "before")
        numbers = range(COUNT)
        self.send([b"{" if is_malformed(each) else json.dumps({"a": each}).encode() for each in numbers])

    def send(self, values: list[bytes]) -> None:
        producer = Producer(self.kafka.config)
        for number, value in enumerate(values):
            producer.produce(self.source, value, partition=number % 2)
        assert producer.flush(20) == 0

    def topics(self) -> str:
        """New output topics; the start of their names."""
        name = f"out-{secrets.token_hex(4)}"
        for each in self.suffixes:
            create_topic(self.kafka.config, f"{name}-{each}", 2)
        return name

    suffixes = (*map(str, range(COPIES)), "dead")

    def pipeline(self, topics: str) -> tr.Pipeline:
        return tr.Pipeline(
            self.name,
            tr.KafkaSource(self.source, "a long not null", starting="earliest"),
            work(topics),
            tr.KafkaSink(topic_column="to"),
            python_errors="dead-letter",
            dead_letters=f"{topics}-dead",
        )

    def run(self, topics: str, mode: str, checkpoint: Path) -> list[str]:
        """Process everything; return what the start has announced."""
        return run(self.pipeline(topics), self.kafka, mode, checkpoint)

    def run_again(self, topics: str, mode: str, ends: Ends | None = None) -> "Again":
        """Run from the checkpoint before the records, as after a crash that left a note with these ends."""
        copied = self.folder / secrets.token_hex(4)
        shutil.copytree(self.folder / "before", copied)
        if ends is not None:
            note_crash(copied, self.pipeline(topics), self.kafka, ends)
        return Again(copied, self.run(topics, mode, copied))

    def outputs(self, topics: str) -> list[tuple[str, TopicRecord]]:
        """All outputs with the last part of their topic's name."""
        return [
            (each, record) for each in self.suffixes for record in read_records(self.kafka.config, f"{topics}-{each}")
        ]

    def named(self, topics: str) -> Counter[tuple[str, Name]]:
        return Counter((each, Name.of(record)) for each, record in self.outputs(topics))

    @property
    def query(self) -> str:
        return str(json.loads((self.folder / "before" / "metadata").read_text())["id"])


@pytest.fixture(scope="module")
def case(spark: Any, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(broker, tmp_path_factory.mktemp("named"))


@pytest.fixture(scope="module")
def full(case: Case) -> str:
    """The topics of one whole run."""
    topics = case.topics()
    case.run_again(topics, "microbatch")
    return topics


@pytest.fixture
def guards(spark: Any, case: Case) -> Guards:
    return Guards(spark, {"bootstrap.servers": case.kafka.bootstrap_servers})


def test_every_output_has_a_name_of_its_own(case: Case, full: str) -> None:
    named = case.named(full)
    assert set(named.values()) == {1}
    assert Counter((each, name.maker, name.number) for each, name in named) == expected()
    assert {(name.query, name.source, name.topic) for _, name in named} == {(case.query, 0, case.source)}
    by_record: dict[tuple[str, int], list[int]] = {}
    for _, name in named:
        by_record.setdefault((name.maker, name.number), []).append(name.index)
    assert all(sorted(each) == list(range(len(each))) for each in by_record.values()), "counted over all topics"


def test_names_are_equal_in_both_modes_and_in_every_run(case: Case, full: str) -> None:
    first_time, again = case.topics(), case.topics()
    case.run_again(first_time, "realtime")
    case.run_again(again, "realtime")
    assert case.named(first_time) == case.named(full)
    assert case.named(again) == case.named(full)

    def values(topics: str) -> dict[tuple[str, Name], bytes | None]:
        return {(each, Name.of(record)): record.value for each, record in case.outputs(topics)}

    written = {key: (value or b"").replace(full.encode(), b"") for key, value in values(full).items()}
    assert written == {key: (value or b"").replace(again.encode(), b"") for key, value in values(again).items()}


def test_a_guard_drops_what_exists_and_nothing_else(case: Case, full: str, guards: Guards, mode: str) -> None:
    topics, half = case.topics(), case.outputs(full)[::2]
    producer = Producer(case.kafka.config)
    for each, record in half:
        producer.produce(f"{topics}-{each}", record.value, headers=list(record.headers))
    for number in range(20):  # others write there, too
        stranger = [("tailrace.id", f"another:0:o:{number}".encode()), ("tailrace.topic", case.source.encode())]
        producer.produce(
            f"{topics}-0", b"{}", headers=[*stranger, ("tailrace.partition", b"0"), ("tailrace.offset", b"1")]
        )
    assert producer.flush(20) == 0
    ends = {f"{topics}-{each}": {0: 0, 1: 0} for each in case.suffixes}
    assert guards.read(case.query, ends).size() == len(half)
    assert case.run_again(topics, mode, ends).guarded == len(half)
    named = Counter({key: count for key, count in case.named(topics).items() if key[1].query == case.query})
    assert named == case.named(full)


def test_a_guard_of_everything_lets_nothing_through(case: Case, full: str, mode: str) -> None:
    before = len(case.outputs(full))
    again = case.run_again(full, mode, {f"{full}-{each}": {0: 0} for each in case.suffixes})
    assert again.guarded == before, "a partition that is not in the note is read as a whole"
    assert len(case.outputs(full)) == before


def test_a_guard_of_nothing_drops_nothing_and_the_topics_of_rows_are_noted(case: Case, full: str, mode: str) -> None:
    topics = case.topics()
    again = case.run_again(topics, mode, {f"{topics}-0": {0: 0, 1: 0}})
    assert again.guarded == 0
    assert case.named(topics) == case.named(full)
    assert again.noted == {f"{topics}-{each}" for each in case.suffixes}


def test_the_last_of_several_headers_counts(case: Case, guards: Guards) -> None:
    topic = case.kafka.topic("stale", 1)
    producer = Producer(case.kafka.config)
    place = [("tailrace.topic", b"t"), ("tailrace.partition", b"1"), ("tailrace.offset", b"7")]
    stale = [("tailrace.id", b"q:0:r:0"), ("tailrace.offset", b"3")]
    producer.produce(topic, b"", headers=[*stale, *place, ("tailrace.id", b"q:1:o:2")])
    for broken in (b"q:1:o", b"q:x:o:1", b"qq:0:o:0", b"q", b"", None):
        producer.produce(topic, b"", headers=[*place, ("tailrace.id", broken)])
    producer.produce(topic, b"", headers=[("tailrace.id", b"q:1:o:0")])
    assert producer.flush(20) == 0
    guard = guards.read("q", {topic: {0: 0}})
    assert guard.size() == 1
    partition = guards.jvm.org.apache.kafka.common.TopicPartition("t", 1)
    part = guard.part(1, partition)
    assert part.contains(topic, "o", 7, 2)
    assert not part.contains(topic, "o", 3, 2)
    assert not part.contains(topic, "o", 7, 0)
    assert not part.contains("elsewhere", "o", 7, 2)
    other = guards.jvm.org.apache.kafka.common.TopicPartition("t", 0)
    assert (guard.endOf(partition), guard.endOf(other)) == (8, 0)
    assert not guard.part(0, partition).contains(topic, "o", 7, 2), "another source's record"


def unreadable(failed: pytest.ExceptionInfo[Py4JJavaError]) -> str:
    refused = failed.value.java_exception
    assert refused.getClass().getSimpleName() == "GuardUnreadable"
    return str(refused.why())


def test_outputs_that_retention_has_removed(case: Case, guards: Guards) -> None:
    topic = case.kafka.topic("removed", 1)
    case.kafka.send(topic, [b"a", b"b", b"c"])
    admin = AdminClient(case.kafka.config)
    for each in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        each.result(20)
    with pytest.raises(Py4JJavaError) as failed:
        guards.read("q", {topic: {0: 1}})
    assert unreadable(failed) == "partition 0 begins at 2, and 1 is needed"
    assert guards.read("q", {topic: {0: 2}}).size() == 0


def test_a_topic_that_is_another_one_now(case: Case, guards: Guards) -> None:
    topic = case.kafka.topic("shorter", 1)
    with pytest.raises(Py4JJavaError) as failed:
        guards.read("q", {topic: {0: 5}})
    assert unreadable(failed) == "partition 0 ends at 0, before 5: it is another topic"
    with pytest.raises(Py4JJavaError) as failed:
        guards.read("q", {topic: {0: 0, 1: 3}})
    assert unreadable(failed) == "partition 1 is gone"
    assert guards.read("q", {topic: {0: 0, 1: 0}}).size() == 0, "a topic that did not exist is noted with one partition"


def test_a_refused_result_has_one_dead_letter(spark: Any, case: Case, tmp_path: Path) -> None:
    kafka, source, dead = case.kafka, case.kafka.topic("in", 1), case.kafka.topic("dead", 1)
    sink = tr.KafkaSink(kafka.topic("out", 1), value="value", options={"kafka.max.request.size": "100000"})
    pipeline = tr.Pipeline(
        f"refused-{secrets.token_hex(4)}",
        tr.KafkaSource(source, format="bytes", starting="earliest"),
        lambda records: records,
        sink,
        dead_letters=dead,
    )

    kafka.send(source, [b"first"])
    run(pipeline, kafka, "realtime", tmp_path / "before")
    for name in ("one", "two"):
        shutil.copytree(tmp_path / "before", tmp_path / name)
    kafka.send(source, [b"second", bytes(200_000), b"third"])
    run(pipeline, kafka, "realtime", tmp_path / "one")
    (letter,) = read_records(kafka.config, dead)
    name = Name.of(letter)
    assert (name.maker, name.index, name.offset) == ("o", 0, 2)
    note_crash(tmp_path / "two", pipeline, kafka, {dead: {0: 0}, str(sink.topic): {0: 0}})
    run(pipeline, kafka, "realtime", tmp_path / "two")
    assert len(list(read_records(kafka.config, dead))) == 1
    assert len(list(read_records(kafka.config, str(sink.topic)))) == 3
