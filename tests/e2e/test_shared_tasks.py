"""Several partitions share a task: the same results with fewer slots; new partitions are read within seconds."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import PIPELINE, tailrace
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from conftest import Kafka, consumers_of_tasks, wait_until
from copies import Copy, numbers
from figures import note
from load import Load
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import SlotsMissing
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import log_ends
from tailrace.running.query import RunningQuery
from tailrace.running.summary import RunSummary

pytestmark = pytest.mark.usefixtures("spark")


class Query:
    """A pipeline from a topic with many partitions."""

    def __init__(
        self, kafka: Kafka, folder: Path, partitions: int, transform: Callable[[DataFrame], DataFrame] = lambda df: df
    ) -> None:
        self.kafka = kafka
        self.source, self.sink = kafka.topic("in", partitions), kafka.topic("out", 1)
        self.checkpoint = folder / "checkpoint"
        self.pipeline = tr.Pipeline(
            f"shared-{secrets.token_hex(4)}",
            tr.KafkaSource(self.source, "a long", starting="earliest"),
            transform,
            tr.KafkaSink(self.sink),
            malformed="drop",
        )

    def start(self, mode: str = "realtime", **options: Any) -> RunningQuery:
        servers = self.kafka.bootstrap_servers
        return tr.start(self.pipeline, mode, bootstrap_servers=servers, checkpoint=self.checkpoint, **options)

    def run_once(self, mode: str = "realtime", **options: Any) -> RunSummary:
        servers = self.kafka.bootstrap_servers
        return tr.run(self.pipeline, mode, bootstrap_servers=servers, checkpoint=self.checkpoint, once=True, **options)

    def rows(self) -> list[Any]:
        return [json.loads(record.value) for record in read_records(self.kafka.config, self.sink)]

    def written(self) -> Counter[int]:
        return Counter(row["a"] for row in self.rows())


def test_more_partitions_than_slots(kafka: Kafka, tmp_path: Path) -> None:
    """The session has 8 slots."""
    query = Query(kafka, tmp_path, 24)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(480)])
    with pytest.raises(SlotsMissing, match="24 task slots") as refused:
        query.start()
    assert "--tasks 8" in refused.value.fix
    report = tr.check(query.pipeline, bootstrap_servers=kafka.bootstrap_servers, tasks=4)
    assert [task.split(", ") for task in report.reads] == [
        [f"{query.source}-{number}" for number in range(task, 24, 4)] for task in range(4)
    ]
    for number in range(3):
        with query.start(tasks=4) as running:
            assert running.slots is not None
            assert running.slots.stages == (4,)
            kafka.send_to_every_partition(query.source, [{"a": n} for n in range(480 + 24 * number, 504 + 24 * number)])
            wait_until(lambda count=504 + 24 * number: len(query.rows()) >= count, 60, "all are written")
    assert query.written() == Counter(range(552))


def test_four_slots_for_24_partitions(own_home: dict[str, str], kafka: Kafka, tmp_path: Path) -> None:
    """The command on a Spark with given slots: as many tasks as fit, and each record once."""
    source, sink = kafka.topic("in", 24), kafka.topic("out", 1)
    kafka.send_to_every_partition(source, [{"id": n, "card": "c", "amount": 99.0} for n in range(480)])
    (tmp_path / "cards.py").write_text(PIPELINE.format(name="cards", source=source, sink=sink))
    options = ("--master", "local[4]", "--tasks", "auto", "--bootstrap-servers", kafka.bootstrap_servers)
    done = tailrace("run", "cards.py", "--once", *options, cwd=tmp_path, env=own_home)
    assert done.returncode == 0, done.stderr
    assert "4 task slots; " in done.stderr
    assert Counter(row["id"] for _, row in kafka.receive_count(sink, 480)) == Counter(range(480))


def test_order_within_a_partition(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path, 12)
    producer = Producer(kafka.config)
    for n in range(6000):  # partition 0 has half of them
        producer.produce(query.source, json.dumps({"a": n}).encode(), partition=0 if n % 2 else n // 2 % 12)
    assert producer.flush(20) == 0
    query.run_once(tasks=2)
    records = list(read_records(kafka.config, query.sink))
    assert Counter(json.loads(record.value)["a"] for record in records) == Counter(range(6000))
    last: dict[bytes, int] = {}
    for record in records:
        headers = dict(record.headers)
        partition, offset = headers["tailrace.partition"], int(headers["tailrace.offset"])
        assert offset > last.get(partition, -1)
        last[partition] = offset


def test_records_that_arrive_during_a_bounded_run(kafka: Kafka, tmp_path: Path) -> None:
    """They are past the bound of their partition, and the next run reads them."""
    query = Query(kafka, tmp_path, 6)
    with Load(kafka, [query.source], per_second=2000) as load:
        for number in range(4):
            # Every run has a backlog on four more partitions, so that its tasks do not reach their bounds together.
            producer = Producer(kafka.config)
            for n in range(3000):
                producer.produce(query.source, json.dumps({"a": -1 - n - 3000 * number}).encode(), partition=2 + n % 4)
            assert producer.flush(20) == 0
            summary = query.run_once(tasks=1 + number % 3)
            assert summary.repeats == ""
    query.run_once(tasks=2)
    assert query.written() == Counter(range(-12000, load.sent))


def test_a_load_on_every_partition_of_shared_tasks(kafka: Kafka, tmp_path: Path) -> None:
    """Checkpoints, stops and restarts with another number of tasks, while all partitions get records."""
    query = Query(kafka, tmp_path, 24)
    with Load(kafka, [query.source], per_second=1000, partitions=24) as load:
        for tasks in (4, 3):
            with query.start(tasks=tasks) as running:
                wait_for_every_partition(running, 24)
                running.checkpoint()
                wait_for_every_partition(running, 24)
                assert {each.task for each in running.positions()} == set(range(tasks))
                assert running.stop().repeats == ""
    query.run_once(tasks=4)
    assert query.written() == Counter(range(load.sent))


def wait_for_every_partition(running: RunningQuery, partitions: int) -> None:
    """Wait until the open batch has read records of each partition."""

    def have_records() -> bool:
        positions = running.positions()
        return len(positions) == partitions and all(each.records for each in positions)

    wait_until(have_records, 30, "every partition is read")


def test_a_keyed_aggregate_with_auto(kafka: Kafka, tmp_path: Path) -> None:
    """Eight slots: four tasks read all 24 partitions, four count."""
    query = Query(kafka, tmp_path, 24, lambda df: df.groupBy((F.col("a") % 5).alias("key")).count())
    with Load(kafka, [query.source], partitions=24) as load, query.start(tasks="auto") as running:
        assert running.slots is not None
        assert running.slots.stages == (4, 4)
        wait_for_every_partition(running, 24)
        running.checkpoint()
        wait_for_every_partition(running, 24)
        assert {each.task for each in running.positions()} == set(range(4))
    report = tr.check(query.pipeline, bootstrap_servers=kafka.bootstrap_servers, checkpoint=query.checkpoint, tasks=2)
    assert report.slots is not None
    assert report.slots.stages == (2, 4)
    assert report.checkpoint.endswith("; it keeps its 4 shuffle partitions")
    with query.start(tasks="auto"):
        counts = Counter(n % 5 for n in range(load.sent))
        wait_until(lambda: Counter({row["key"]: row["count"] for row in query.rows()}) == counts, 60, "all are counted")


@pytest.mark.parametrize("spare", [True, False], ids=["with a free slot", "without"])
def test_new_partitions_are_read_within_seconds(kafka: Kafka, tmp_path: Path, *, spare: bool) -> None:
    query = Query(kafka, tmp_path, 4 if spare else 8)  # the session has 8 slots
    with query.start() as running:
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8)])
        wait_until(lambda: len(query.rows()) >= 8, 60, "the first partitions are read")
        kafka.add_partitions(query.source, 12)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8, 32)])
        began = time.monotonic()
        wait_until(lambda: len(query.rows()) >= 32, 60, "the new partitions are read")
        slot = "with a free slot" if spare else "without a free slot"
        note("watch", f"new partitions are read, realtime, {slot}", time.monotonic() - began)
        assert time.monotonic() - began < 30  # 10 s on a machine that does nothing else
        assert len(running.positions()) == 12
        assert running.starved == ""
    assert query.written() == Counter(range(32))


def test_new_partitions_take_no_slots_that_another_query_has_taken(kafka: Kafka, tmp_path: Path) -> None:
    """The slots that were free when the query started are taken when its topic gains partitions."""
    query, other = Query(kafka, tmp_path / "a", 4), Query(kafka, tmp_path / "b", 4)  # the session has 8 slots
    with query.start() as running, other.start() as beside:
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8)])
        wait_until(lambda: len(query.rows()) >= 8, 60, "the first partitions are read")
        kafka.add_partitions(query.source, 8)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8, 24)])
        wait_until(lambda: len(query.rows()) >= 24, 60, "the new partitions are read")
        assert {each.task for each in running.positions()} == set(range(4)), "they share the tasks that run"
        assert running.starved == beside.starved == ""
        beside.stop()
        kafka.add_partitions(query.source, 10)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(24, 34)])
        wait_until(lambda: len(query.rows()) >= 34, 60, "the next partitions are read")
        assert {each.task for each in running.positions()} == set(range(8)), "in the slots that are free now"
    assert query.written() == Counter(range(34))


def test_a_micro_batch_query_reads_new_partitions(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path, 2)
    with query.start("microbatch"):
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8)])
        wait_until(lambda: len(query.rows()) >= 8, 60, "the first partitions are read")
        kafka.add_partitions(query.source, 6)
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8, 32)])
        began = time.monotonic()
        wait_until(lambda: len(query.rows()) >= 32, 60, "the new partitions are read")
        note("watch", "new partitions are read, microbatch", time.monotonic() - began)
        assert time.monotonic() - began < 30
    assert query.written() == Counter(range(32))


@pytest.mark.parametrize("tasks", [None, 8], ids=["a task each", "shared tasks"])
def test_new_partitions_between_two_runs(kafka: Kafka, mode: str, tmp_path: Path, tasks: int | None) -> None:
    """They are read from their beginning; if there are too few slots for them, the next start says so."""
    query = Query(kafka, tmp_path, 4)
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8)])
    query.run_once(mode, tasks=tasks)
    kafka.add_partitions(query.source, 12 if tasks else 8)  # the session has 8 slots
    kafka.send_to_every_partition(query.source, [{"a": n} for n in range(8, 32)])
    if tasks and mode == "realtime":
        with pytest.raises(SlotsMissing, match="12 task slots"):
            query.run_once(mode)
    query.run_once(mode, tasks=tasks)
    assert query.written() == Counter(range(32))


def test_a_writer_that_assigns_partitions_shares_tasks(copy: Copy, kafka: Kafka) -> None:
    topic = kafka.topic("in", 8)
    kafka.send_to_every_partition(topic, [{"a": n} for n in range(80)])
    rows = copy.read(assign=json.dumps({topic: [1, 3, 4, 6, 7]}), startingOffsets="earliest")
    writer = copy.writer(rows)
    assert [task.split(", ") for task in tr.check(writer, tasks=2).reads] == [
        [f"{topic}-{number}" for number in numbers] for numbers in ([1, 4, 7], [3, 6])
    ]
    with copy.start(writer, "realtime", tasks=2) as running:
        wait_until(lambda: len(copy.written()) >= 50, 60, "all are written")
        assert {each.partition: each.task for each in running.positions()} == {1: 0, 3: 1, 4: 0, 6: 1, 7: 0}
    kafka.send_to_every_partition(topic, [{"a": n} for n in range(80, 96)])
    copy.run_once(writer, "realtime", tasks=3)
    assert numbers(copy.written()) == Counter(n for n in range(96) if n % 8 in {1, 3, 4, 6, 7})


def test_lost_records_of_one_partition_delay_no_other_in_its_task(copy: Copy, kafka: Kafka) -> None:
    """The reader continues that partition at the first record that is left."""
    topic = kafka.topic("in", 4)
    kafka.send_to_every_partition(topic, [{"a": n} for n in range(40)])
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"))
    copy.run_once(writer, "realtime", tasks=1)
    kafka.send_to_every_partition(topic, [{"a": n} for n in range(40, 80)])
    admin = AdminClient(kafka.config)  # held by name: its answers die with it
    (deleted,) = admin.delete_records([TopicPartition(topic, 2, 15)]).values()
    deleted.result(20)
    copy.run_once(writer, "realtime", tasks=1)
    gone = {42, 46, 50, 54, 58}
    assert numbers(copy.written()) == Counter(set(range(80)) - gone)


def test_a_compacted_topic_in_a_shared_task(copy: Copy, kafka: Kafka) -> None:
    """A query that stops and starts: the position passes the gaps, which are no lost records."""
    topic = kafka.topic("in", 4)
    kafka.compact(topic)
    producer = Producer(kafka.config)

    def send(begin: int, end: int, keys: int = 1_000_000) -> None:
        """Send numbers; only two of the same key can be compacted."""
        for n in range(begin, end):
            key = f"{n % keys} of {keys}"
            producer.produce(topic, json.dumps({"a": n}).encode(), key=key, partition=n % 4)
        assert producer.flush(20) == 0

    def compact(begin: int) -> None:
        """Send records of which the last twelve stay: three of each partition."""
        send(begin, begin + 400, keys=8)
        time.sleep(0.2)  # the next record begins another segment, and this one is compacted
        send(begin + 400, begin + 404)
        wait_until(lambda: not left() & set(range(begin, begin + 392)), 60, "the topic is compacted")

    def left() -> set[int]:
        return {json.loads(record.value)["a"] for record in read_records(kafka.config, topic)}

    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest"))
    for begin, count in ((0, 212), (1000, 424)):
        compact(begin)
        with copy.start(writer, "realtime", tasks=1) as running:
            wait_until(lambda count=count - 200: len(copy.written()) >= count, 60, "what was left is read")
            send(begin + 404, begin + 604)
            wait_until(lambda count=count: len(copy.written()) >= count, 60, "the next records are read")
            assert running.stop().repeats == ""
    assert numbers(copy.written()) == Counter([*range(392, 604), *range(1392, 1604)])


def test_consumers_are_kept_between_batches(copy: Copy, kafka: Kafka) -> None:
    """A new one would lengthen the pause at every checkpoint."""
    topic = kafka.topic("in", 6)
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest", groupIdPrefix=topic))
    with copy.start(writer, "realtime", tasks=2) as running:
        before: set[str] = set()
        for n in range(3):
            kafka.send_to_every_partition(topic, [{"a": 6 * n + each} for each in range(6)])
            wait_until(lambda count=6 * n + 6: len(copy.written()) >= count, 60, "all are written")
            consumers = consumers_of_tasks(copy.spark, topic)
            assert len(consumers) == 2
            assert before in (set(), consumers)
            before = consumers
            running.checkpoint()
            wait_for_no_records(running)
    assert numbers(copy.written()) == Counter(range(18))


def wait_for_no_records(running: RunningQuery) -> None:
    """Wait until a new batch is open."""
    wait_until(lambda: {each.records for each in running.positions()} == {0}, 30, "a new batch")


def test_transactions_in_a_shared_task(copy: Copy, kafka: Kafka) -> None:
    """Aborted records are skipped, and the position passes the marks at the ends of the partitions."""
    topic = kafka.topic("in", 4)
    options = {"startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    writer = copy.writer(copy.read(subscribe=topic, **options))
    producer = Producer({**kafka.config, "transactional.id": topic})
    producer.init_transactions(20)
    with copy.start(writer, "realtime", tasks=1) as running:
        for round_ in range(4):
            producer.begin_transaction()
            for n in range(8):
                producer.produce(topic, json.dumps({"a": 8 * round_ + n}).encode(), partition=n % 4)
            producer.flush(20)
            (producer.abort_transaction if round_ % 2 else producer.commit_transaction)(20)
        wait_until(lambda: len(copy.written()) >= 16, 60, "the committed records")
        ends = log_ends(kafka.config, {topic: 4})[topic]
        wait_until(lambda: offsets(running) == ends, 10, "the positions")
    copy.run_once(writer, "realtime", tasks=1)
    assert numbers(copy.written()) == Counter([*range(8), *range(16, 24)])


def test_positions_are_those_that_a_client_sees(kafka: Kafka, tmp_path: Path) -> None:
    query = Query(kafka, tmp_path, 6)
    waits_s = []
    with query.start(tasks=2) as running:
        kafka.send_to_every_partition(query.source, [{"a": n} for n in range(60)])
        wait_until(lambda: len(query.rows()) >= 60, 60, "all are written")
        for n in range(10):
            kafka.send_to_every_partition(query.source, [{"a": n}] * 6)
            ends = log_ends(kafka.config, {query.source: 6})[query.source]
            sent_at = time.monotonic()
            wait_until(lambda ends=ends: offsets(running) == ends, 5, "the positions")
            waits_s.append(time.monotonic() - sent_at)
            note("watch", "positions equal a client's view after it was asked", waits_s[-1])
        assert sorted(waits_s)[5] < 1, waits_s
        positions = running.positions()
        assert [each.lag for each in positions] == [0] * 6
        assert [each.records for each in positions] == [20] * 6
        assert [each.task for each in positions] == [0, 1, 0, 1, 0, 1]
        assert all(each.bytes > 0 and each.last_record_ms for each in positions)
        wait_until(lambda: {each.waits_for for each in running.positions()} == {"records"}, 5, "all is processed")
        running.checkpoint()
        wait_for_no_records(running)
        assert offsets(running) == ends


def offsets(running: RunningQuery) -> dict[int, int]:
    return {each.partition: each.offset for each in running.positions()}
