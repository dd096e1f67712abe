"""What a user writes down: where records come from, what happens to them, where they go.

Definitions are plain frozen data. Making one starts nothing, needs no Spark and asks no broker.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.errors import DefinitionError, OptionRefused, SchemaInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_OWNED_SOURCE_OPTIONS = {
    "kafka.bootstrap.servers": "pass --bootstrap-servers or bootstrap_servers= when you run the pipeline",
    "subscribe": "give the topics as KafkaSource's first argument",
    "subscribepattern": "give the topics as KafkaSource's first argument",
    "assign": "give the topics as KafkaSource's first argument",
    "startingoffsets": "use KafkaSource(starting=...)",
}
_OWNED_SINK_OPTIONS = {
    "kafka.bootstrap.servers": "pass --bootstrap-servers or bootstrap_servers= when you run the pipeline",
    "topic": "give the topic as KafkaSink's first argument",
    "checkpointlocation": "pass --checkpoint or checkpoint= when you run the pipeline",
    "kafka.transactional.id": "leave it out: Spark's Kafka sink never opens a transaction, so it cannot work",
}


class Mode(StrEnum):
    """How a pipeline runs. The pipeline itself is the same in both."""

    REALTIME = "realtime"
    """Every record goes through as it arrives; progress is saved once per checkpoint interval."""
    MICROBATCH = "microbatch"
    """Records are gathered and processed in small batches, each saved when it is done."""


@dataclass(frozen=True)
class KafkaSource:
    """Records of one or more Kafka topics, parsed from JSON into columns.

    Attributes:
        topics: One topic, or several.
        schema: The columns in each record: a DDL string (``"id string, amount double"``) or a ``StructType``.
        starting: Where the very first run begins: ``"latest"``, ``"earliest"``, or offsets per topic and partition
            (``{"payments": {"0": 17, "1": -2}}``, where -2 is the earliest and -1 the latest). Later runs go on
            from their checkpoint.
        options: Any option of Spark's Kafka source; those of the Kafka client itself begin with ``kafka.``.
    """

    topics: str | Sequence[str]
    schema: "str | StructType"
    starting: str | Mapping[str, Mapping[str, int]] = "latest"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        _require_topics(names)
        object.__setattr__(self, "topics", names)
        if isinstance(self.schema, str) and not self.schema.strip():
            raise SchemaInvalid("the source's schema is empty", fix='name the columns: schema="id string, ..."')
        if isinstance(self.starting, str) and self.starting not in ("latest", "earliest"):
            raise OptionRefused(
                f"starting={self.starting!r} is not a place in a topic",
                fix='use "latest", "earliest", or offsets such as {"payments": {"0": 17}}',
            )
        object.__setattr__(self, "options", _checked_options(self.options, _OWNED_SOURCE_OPTIONS, "KafkaSource"))

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics as a tuple, also where one name was given."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def starting_offsets(self) -> str:
        """``starting`` in the words of Spark's Kafka source."""
        return self.starting if isinstance(self.starting, str) else json.dumps(self.starting)


@dataclass(frozen=True)
class KafkaSink:
    """A Kafka topic that every row of the result is written to, as a JSON object of all its columns.

    Attributes:
        topic: The topic.
        key: The column whose value becomes the record's key; without one, records have no key.
        options: Any option of Spark's Kafka sink; those of the Kafka producer itself begin with ``kafka.``.
    """

    topic: str
    key: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _require_topics((self.topic,))
        object.__setattr__(self, "options", _checked_options(self.options, _OWNED_SINK_OPTIONS, "KafkaSink"))


@dataclass(frozen=True)
class Pipeline:
    """An ordinary DataFrame function between a Kafka source and a Kafka sink.

    Attributes:
        name: Names the query and its checkpoint folder.
        source: Where records come from.
        transform: Takes the parsed records as a DataFrame and returns what is to be written.
        sink: Where the result goes.
    """

    name: str
    source: KafkaSource
    transform: "Callable[[DataFrame], DataFrame]"
    sink: KafkaSink

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"{self.name!r} cannot be a pipeline's name",
                why="it names the checkpoint folder and the query",
                fix="use letters, digits, dot, dash and underscore",
            )
        for given, wanted, role in (
            (self.source, KafkaSource, "source"),
            (self.sink, KafkaSink, "sink"),
        ):
            if not isinstance(given, wanted):
                raise DefinitionError(
                    f"pipeline {self.name!r}: {role}= is a {type(given).__name__}, not a {wanted.__name__}",
                    fix=f"{role}=tr.{wanted.__name__}(...)",
                )
        if not callable(self.transform):
            raise DefinitionError(
                f"pipeline {self.name!r}: transform= is a {type(self.transform).__name__}, not a function",
                fix="pass a function that takes a DataFrame and returns one",
            )
        if self.sink.topic in self.source.topic_names:
            raise DefinitionError(
                f"pipeline {self.name!r} writes to topic {self.sink.topic!r}, which it also reads",
                why="every record it writes would come back to it for ever",
                fix="write to another topic",
            )


def _require_topics(names: Sequence[str]) -> None:
    """Refuse what Kafka cannot have as a topic's name."""
    if not names:
        raise DefinitionError("the source names no topic", fix='KafkaSource("payments", ...)')
    for name in names:
        if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise DefinitionError(
                f"{name!r} cannot be a topic's name",
                fix="a topic's name has letters, digits, dots, dashes and underscores, 249 at most",
            )
    if len(set(names)) != len(names):
        raise DefinitionError("the source names a topic twice", fix="name each topic once")


def _checked_options(given: Mapping[str, object], owned: Mapping[str, str], where: str) -> dict[str, str]:
    """The options as text, without those that the definition already has a place for.

    A boolean or number is turned into Spark's spelling, as PySpark's own ``option`` does. Values may be secrets, so
    no error repeats one.
    """
    checked: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in owned:
            raise OptionRefused(f"{where}: option {key!r} is set elsewhere", fix=owned[key.lower()])
        checked[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked
