"""Brokers that a relay makes different: without topic ids, and without records though they answer everything else.

`make soak-watch` runs every case.
"""

import logging
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Kafka, wait_until
from copies import Copy, numbers
from figures import note
from relay import Relay, relayed_kafka

import tailrace as tr
from tailrace.errors import DataLost
from tailrace.kafka.ports import LOOPBACK
from tailrace.kafka.topics import create_topic, delete_topics, list_topics
from tailrace.running.topic_watch import NO_IDS

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Relay]]:
    with relayed_kafka(tmp_path_factory.mktemp("relayed")) as started:
        yield started


class RelayedCopy(Copy):
    """A query that reads through the relay."""

    def __init__(self, spark: Any, relayed: tuple[Kafka, Relay], folder: Path) -> None:
        kafka, relay = relayed
        super().__init__(spark, kafka, folder)
        self.servers = f"{LOOPBACK}:{relay.port}"

    def read(self, **options: Any) -> Any:
        servers = {"kafka.bootstrap.servers": self.servers}
        return self.spark.readStream.format("kafka").options(**servers, **options).load()


CASES = [("microbatch", "fail"), ("realtime", "warn")]
if os.environ.get("TAILRACE_WAITS"):
    CASES += [("microbatch", "warn"), ("realtime", "fail")]


@pytest.mark.parametrize(("mode", "on_data_loss"), CASES)
def test_a_broker_without_topic_ids(
    spark: Any,
    relayed: tuple[Kafka, Relay],
    mode: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    on_data_loss: str,
) -> None:
    """It is said once. A topic that comes back with fewer records is named even so, while the query runs."""
    kafka, relay = relayed
    relay.has_ids = False
    copy = RelayedCopy(spark, relayed, tmp_path)
    topic = kafka.topic("in")
    writer = copy.writer(copy.read(subscribe=topic, startingOffsets="earliest"))

    def warnings(words: str) -> list[str]:
        return [each.message for each in caplog.records if words in each.message]

    kafka.send_to_every_partition(topic, [{"a": number} for number in range(20)])
    with caplog.at_level(logging.WARNING, "tailrace"):
        copy.run_once(writer, mode)
        running = copy.start(writer, mode, on_data_loss=on_data_loss)
        kafka.send_to_every_partition(topic, [{"a": number} for number in range(20, 40)])
        wait_until(lambda: len(copy.written()) == 40, 60, "the records of the old topic")
        began = time.monotonic()
        delete_topics(kafka.config, [topic])
        wait_until(lambda: topic not in list_topics(kafka.config), 20, "the topic is deleted")
        create_topic(kafka.config, topic, 2)
        kafka.send_to_every_partition(topic, [{"a": 1000 + number} for number in range(6)])
        if on_data_loss == "fail":
            with pytest.raises(DataLost, match=f"{topic}-[01] ends before the query's position"):
                running.wait(60)
        else:
            wait_until(lambda: len(warnings("continuing at the end of the partition")) == 2, 30, "it is named")
        note("watch", f"a shorter partition is named, {mode}, on_data_loss={on_data_loss}", time.monotonic() - began)
        assert time.monotonic() - began < 15
        if on_data_loss == "warn":
            kafka.send_to_every_partition(topic, [{"a": 5000}, {"a": 5001}])
            wait_until(lambda: {5000, 5001} <= set(numbers(copy.written())), 60, "later records")
            assert running.stop().repeats == ""
            assert numbers(copy.written()) == Counter([*range(40), 5000, 5001])
    assert warnings(NO_IDS) == [f"query '{copy.name}': {NO_IDS}"]


def test_a_broker_that_answers_but_sends_no_records(spark: Any, relayed: tuple[Kafka, Relay], tmp_path: Path) -> None:
    kafka, relay = relayed
    relay.has_ids = True
    source, sink = kafka.topic("in", 4), kafka.topic("out", 1)
    pipeline = tr.Pipeline(
        f"relayed-{secrets.token_hex(4)}",
        tr.KafkaSource(source, "a long", starting="earliest"),
        lambda rows: rows,
        tr.KafkaSink(sink),
        malformed="drop",
    )
    servers = f"{LOOPBACK}:{relay.port}"
    with tr.start(pipeline, bootstrap_servers=servers, checkpoint=tmp_path / "c", tasks=2) as running:
        kafka.send_to_every_partition(source, [{"a": number} for number in range(8)])
        kafka.receive_count(sink, 8)
        relay.sends_records.clear()
        try:
            began = time.monotonic()
            kafka.send_to_every_partition(source, [{"a": number} for number in range(8, 16)])
            wait_until(lambda: running.stalled, 15, "it is stalled")
            note("watch", "stalled, although offsets are answered", time.monotonic() - began)
            assert running.stalled == f"{source}: the broker does not send the records"
            assert (running.slow, running.starved) == ("", "")
        finally:
            relay.sends_records.set()
        kafka.receive_count(sink, 16)
        wait_until(lambda: not running.stalled, 15, "records come again")
