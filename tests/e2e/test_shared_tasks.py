"""Several partitions share a task: the same results with fewer slots; new partitions are read within seconds."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from conftest import Kafka, wait_until
from load import Load
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.errors import SlotsMissing
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import log_ends
from tailrace.running.query import RunningQuery, RunSummary

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

    def start(self, **options: Any) -> RunningQuery:
        servers = self.kafka.bootstrap_servers
        return tr.start(self.pipeline, bootstrap_servers=servers, checkpoint=self.checkpoint, **options)

    def run_once(self, **options: Any) -> RunSummary:
        servers = self.kafka.bootstrap_servers
        return tr.run(self.pipeline, bootstrap_servers=servers, checkpoint=self.checkpoint, once=True, **options)

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


def test_a_keyed_aggregate_with_auto(kafka: Kafka, tmp_path: Path) -> None:
    """Eight slots: four tasks read, four count."""
    query = Query(kafka, tmp_path, 24, lambda df: df.groupBy((F.col("a") % 5).alias("key")).count())
    with Load(kafka, [query.source]) as load, query.start(tasks="auto") as running:
        assert running.slots is not None
        assert running.slots.stages == (4, 4)
        time.sleep(2)
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
        assert time.monotonic() - began < 30  # 10 s on a machine that does nothing else
        assert len(running.positions()) == 12
        assert running.starved == ""
    assert query.written() == Counter(range(32))


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
        assert sorted(waits_s)[5] < 1, waits_s
        positions = running.positions()
        assert [each.lag for each in positions] == [0] * 6
        assert [each.records for each in positions] == [20] * 6
        assert [each.task for each in positions] == [0, 1, 0, 1, 0, 1]
        assert all(each.bytes > 0 and each.last_record_ms for each in positions)
        wait_until(lambda: {each.waits_for for each in running.positions()} == {"records"}, 5, "all is processed")
        running.checkpoint()
        wait_until(lambda: [each.records for each in running.positions()] == [0] * 6, 10, "a new batch")
        assert offsets(running) == ends


def offsets(running: RunningQuery) -> dict[int, int]:
    return {each.partition: each.offset for each in running.positions()}
