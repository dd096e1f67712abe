"""The private broker and the Spark session of a test process."""

import atexit
import functools
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from pyspark.sql import SparkSession

from tailrace.errors import MeasurementFailed
from tailrace.kafka.broker import Broker, temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.failures import NO_ANSWER
from tailrace.kafka.records import topic_record
from tailrace.kafka.topics import ClientConfig, create_topic, list_topics, log_ends, matching
from tailrace.pipeline import KafkaSource, Pipeline, epoch_milliseconds
from tailrace.spark_session import end_session, has_context, session
from tailrace.testing.output import OutputRecord
from tailrace.testing.rows import Record, encoded

SOURCE_PARTITIONS = 2
SINK_PARTITIONS = 1
"""One, so that the output has one order."""
_SLOTS = 32
"""More than any test needs: a slot without a task costs nothing."""
_SEND_TIMEOUT_S = 30.0


class Bench:
    """Topics that live as long as the process; each run starts where the last one ended."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.config: ClientConfig = plain_client(broker.bootstrap_servers)

    @property
    def spark(self) -> SparkSession:
        """The running session, or a new one."""
        if has_context():
            return session()
        return session("tailrace-testing", master=f"local[{_SLOTS}]", conf={"spark.ui.enabled": "false"})

    def make_topics(self, names: Iterable[str], partitions: int) -> None:
        """Create the topics that are missing."""
        existing = list_topics(self.config)
        for name in names:
            if name not in existing:
                create_topic(self.config, name, partitions)

    def folder(self) -> Path:
        """Return a new folder for a checkpoint."""
        return self.broker.scratch / secrets.token_hex(6)

    def from_here(self, pipeline: Pipeline) -> Pipeline:
        """Return the pipeline with sources that start at the current end of their topics."""
        return replace(pipeline, source=tuple(self._from_here(source) for source in pipeline.sources))

    def ends(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the current ends of topics."""
        counts = list_topics(self.config)
        return log_ends(self.config, {topic: counts[topic] for topic in topics})

    def topics_of(self, source: KafkaSource) -> list[str]:
        """Return the existing topics that a source reads."""
        if source.pattern is None:
            return list(source.topic_names)
        return list(matching(list_topics(self.config), source.pattern))

    def send(self, records: Sequence[Record]) -> None:
        """Send records; those without a partition go to the partitions round-robin."""
        producer = Producer(dict(self.config))
        # A topic that another pipeline writes to has one partition.
        partitions = list_topics(self.config)
        refused: list[str] = []
        for number, record in enumerate(records):
            topic = str(record.topic)
            producer.produce(
                topic,
                encoded(record.value),
                key=record.key,
                partition=number % partitions[topic] if record.partition is None else record.partition,
                headers=list(record.headers),
                timestamp=epoch_milliseconds(record.timestamp) if record.timestamp is not None else 0,
                on_delivery=lambda failed, _: refused.append(str(failed)) if failed is not None else None,
            )
        if producer.flush(_SEND_TIMEOUT_S) or refused:
            why = refused[0] if refused else NO_ANSWER
            raise MeasurementFailed("the test's private broker did not take all records", why=why)

    def read(self, topic: str, since: dict[int, int], until: dict[int, int]) -> list[OutputRecord]:
        """Return the records of a topic between two ends, by partition."""
        records: list[OutputRecord] = []
        consumer = Consumer({**self.config, "group.id": "tailrace-testing", "enable.auto.commit": False})
        try:
            for partition, end in until.items():
                position = since.get(partition, 0)
                if position >= end:
                    continue
                consumer.assign([TopicPartition(topic, partition, position)])
                while position < end:
                    message = consumer.poll(_SEND_TIMEOUT_S)
                    if message is None:
                        raise MeasurementFailed(f"the test's private broker did not give all records of {topic}")
                    if message.error() is None:
                        records.append(_output_record(message))
                        position = int(message.offset() or 0) + 1
        finally:
            consumer.close()
        return records

    def offsets(self, source: KafkaSource) -> dict[str, dict[str, int]]:
        """Return the current ends of a source's topics, as options of Spark's Kafka source."""
        return {
            topic: {str(partition): end for partition, end in partitions.items()}
            for topic, partitions in self.ends(self.topics_of(source)).items()
        }

    def _from_here(self, source: KafkaSource) -> KafkaSource:
        return replace(source, starting=self.offsets(source), options=without_security(source.options))


def without_security(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options without login and encryption: the private broker has neither."""
    private = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
    return {key: value for key, value in options.items() if not key.lower().startswith(private)}


@functools.cache
def shared_bench() -> Bench:
    """Return the bench of this process; the first call starts it."""
    broker = temporary_broker(lambda _: None)
    bench = Bench(broker)
    atexit.register(_end, bench)
    return bench


def _end(bench: Bench) -> None:
    end_session()
    shutil.rmtree(bench.broker.scratch, ignore_errors=True)
    bench.broker.stop()


def _output_record(message: Message) -> OutputRecord:
    record = topic_record(message)
    return OutputRecord(record.topic, record.key, record.value, record.headers)
