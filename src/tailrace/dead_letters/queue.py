"""The dead-letter topic of a pipeline, up to its current end."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.selection import Selection
from tailrace.errors import DefinitionError, OptionRefused
from tailrace.kafka.bootstrap import resolve_bootstrap_servers
from tailrace.kafka.client import client_config
from tailrace.kafka.records import read_records
from tailrace.kafka.topics import ClientConfig, existing_partitions, log_ends, topic_id
from tailrace.pipeline import Pipeline


@dataclass(frozen=True)
class Queue:
    """The dead letters that a pipeline has written until now.

    Attributes:
        pipeline: The pipeline.
        topic: Its dead-letter topic.
        config: The client's settings, from the options of the pipeline's sink: the pipeline writes its letters so.
        ends: The end of each partition; empty if the topic does not exist.
    """

    pipeline: Pipeline
    topic: str
    config: ClientConfig
    ends: Mapping[int, int]

    @property
    def exists(self) -> bool:
        """Whether the topic exists."""
        return bool(self.ends)

    @property
    def bootstrap_servers(self) -> str:
        """The brokers."""
        return str(self.config["bootstrap.servers"])

    def topic_id(self) -> str:
        """Return the id of the topic."""
        return topic_id(self.config, self.topic)

    def letters(self, selection: Selection) -> Iterator[Letter]:
        """Yield the letters of the pipeline that belong to a selection; each partition in its order.

        Raises:
            KafkaError: The topic cannot be read.
        """
        if not self.exists:
            return
        with closing(read_records(self.config, self.topic, ends=self.ends)) as records:
            for record in records:
                letter = Letter.of(record)
                # Pipelines may share a topic.
                if letter is not None and letter.pipeline == self.pipeline.name and selection.takes(letter):
                    yield letter


def open_queue(pipeline: Pipeline, bootstrap_servers: str | None) -> Queue:
    """Ask the brokers for the dead-letter topic of a pipeline.

    Args:
        pipeline: The pipeline.
        bootstrap_servers: The brokers; None for those that a run would use.

    Raises:
        DefinitionError: The pipeline writes no dead letters.
        KafkaError: No broker responds, or the topic is hidden from this user.
    """
    topic = pipeline.dead_letter_topic
    if topic is None:
        raise DefinitionError(
            f"pipeline {pipeline.name!r} writes no dead letters",
            why=f"it has malformed={pipeline.malformed!r} and python_errors={pipeline.python_errors!r}",
            fix="Pipeline(malformed='dead-letter') or Pipeline(python_errors='dead-letter')",
        )
    config = client_config(resolve_bootstrap_servers(bootstrap_servers), pipeline.sink.options)
    if config is None:
        raise OptionRefused(
            f"the dead letters of pipeline {pipeline.name!r} cannot be read",
            why="with a Java keystore (JKS) or Kerberos only Spark can connect",
            fix="give the sink PEM files: kafka.ssl.truststore.type=PEM",
        )
    partitions = existing_partitions(config, topic)
    ends = log_ends(config, {topic: partitions})[topic] if partitions is not None else {}
    return Queue(pipeline, topic, config, ends)
