"""Pipeline definitions: the source of the records, the function and the sink.

Definitions are plain frozen data. Creating one starts nothing and needs neither Spark nor a broker.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from tailrace.errors import NAME_FIX, DefinitionError, OptionRefused, SchemaInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMATS = ("json", "string", "bytes")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
POLICIES = ("dead-letter", "fail", "drop")
PYTHON_ERRORS = ("fail", "dead-letter")
WITHOUT_TIME_ZONE = "it would mean a different time on a machine in another time zone"
"""Why a time without a zone is refused."""
RESERVED_PREFIX = "__tailrace_"
"""Columns with this prefix are reserved for Tailrace."""
HEADER_PREFIX = "tailrace."
"""Headers with this prefix are reserved for Tailrace."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

_BROKERS_FIX = "pass --bootstrap-servers or bootstrap_servers= when you run the pipeline"
_TOPICS_FIX = "give the topics as KafkaSource's first argument"
_STARTING_FIX = 'use "latest", "earliest", a datetime, or offsets such as {"payments": {"0": 17}}'
_OWNED_SOURCE_OPTIONS = {
    "kafka.bootstrap.servers": _BROKERS_FIX,
    "subscribe": _TOPICS_FIX,
    "subscribepattern": "use KafkaSource(pattern=...)",
    "assign": _TOPICS_FIX,
    "startingoffsets": "use KafkaSource(starting=...)",
    "startingtimestamp": "use KafkaSource(starting=...)",
    "startingoffsetsbytimestamp": "use KafkaSource(starting=...)",
    "startingoffsetsbytimestampstrategy": "unset it: a partition without later records simply waits for one",
    "includeheaders": "use KafkaSource(metadata=...), which has them",
}
_OWNED_JSON_OPTIONS = {
    "mode": "use Pipeline(malformed=...)",
    "columnnameofcorruptrecord": "use Pipeline(malformed=...): malformed records go to the dead letters",
}
_OWNED_SINK_OPTIONS = {
    "kafka.bootstrap.servers": _BROKERS_FIX,
    "topic": "give the topic as KafkaSink's first argument, or a column with KafkaSink(topic_column=...)",
    "includeheaders": "use KafkaSink(headers=...)",
    "checkpointlocation": "pass --checkpoint or checkpoint= when you run the pipeline",
    "kafka.transactional.id": "unset it: Spark's Kafka sink never opens a transaction, so it cannot work",
}


class Mode(StrEnum):
    """How a pipeline runs. The pipeline itself is the same in both."""

    REALTIME = "realtime"
    """Every record is processed when it arrives; progress is saved once per checkpoint interval."""
    MICROBATCH = "microbatch"
    """Records are processed in small batches; progress is saved after each."""


@dataclass(frozen=True)
class KafkaSource:
    """Records of one or more Kafka topics, as columns.

    Attributes:
        topics: One topic, or several; or none where ``pattern`` names them.
        schema: The columns in each JSON record: a DDL string (``"id string, amount double"``) or a ``StructType``. A
            column declared ``not null`` must be there in every record. Records in another format have no schema.
        pattern: A regular expression (Java's); every topic whose whole name it matches is read.
        format: ``"json"``; or ``"string"`` or ``"bytes"``, which give one column, ``value``.
        starting: Where the very first run begins: ``"latest"``, ``"earliest"``, a ``datetime`` with its time zone, or
            offsets per topic and partition (``{"payments": {"0": 17, "1": -2}}``, where -2 is the earliest and -1 the
            latest). Later runs continue from their checkpoint.
        metadata: The name of a column to add, a struct of the record's ``topic``, ``partition``, ``offset``,
            ``timestamp``, ``key`` and ``headers``.
        event_time: The timestamp column that says when a record happened; Kafka's own timestamp by default. It goes
            into the lineage headers.
        json_options: Options of Spark's JSON reader, such as ``timestampFormat``.
        options: Any option of Spark's Kafka source; those of the Kafka client itself begin with ``kafka.``.
    """

    topics: str | Sequence[str] = ()
    schema: "str | StructType | None" = None
    _: KW_ONLY
    pattern: str | None = None
    format: str = "json"
    starting: "str | datetime | Mapping[str, Mapping[str, int]]" = "latest"
    metadata: str | None = None
    event_time: str | None = None
    json_options: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = _names(self.topics)
        object.__setattr__(self, "topics", names)
        if self.pattern is None:
            _require_topics(names)
        else:
            _require_pattern(self.pattern, names)
        self._require_format()
        self._require_starting()
        _require_column_name(self.metadata, "metadata")
        object.__setattr__(
            self, "json_options", _checked_options(self.json_options, _OWNED_JSON_OPTIONS, "json_options")
        )
        object.__setattr__(self, "options", _checked_options(self.options, _OWNED_SOURCE_OPTIONS, "KafkaSource"))

    def _require_format(self) -> None:
        if self.format not in FORMATS:
            raise DefinitionError(f"invalid format={self.format!r}", fix=f"use one of {', '.join(FORMATS)}")
        if self.format != "json":
            if self.schema is not None or self.json_options or self.event_time is not None:
                raise DefinitionError(
                    f"format={self.format!r} has one column, value, and takes no schema, event_time or json_options",
                    fix="remove them, or use format='json'",
                )
            return
        if self.schema is None or (isinstance(self.schema, str) and not self.schema.strip()):
            raise SchemaInvalid(
                "the source's schema is empty",
                fix='name the columns: schema="id string, ..."; or read the records as they are: format="string"',
            )

    def _require_starting(self) -> None:
        if isinstance(self.starting, str) and self.starting not in ("latest", "earliest"):
            raise OptionRefused(f"invalid starting={self.starting!r}", fix=_STARTING_FIX)
        if isinstance(self.starting, Mapping):
            object.__setattr__(self, "starting", _checked_offsets(self.starting))
        elif not isinstance(self.starting, str | datetime):
            raise OptionRefused(f"invalid starting={self.starting!r}", fix=_STARTING_FIX)
        if isinstance(self.starting, datetime) and self.starting.tzinfo is None:
            raise OptionRefused(
                f"starting={self.starting} has no time zone",
                why=WITHOUT_TIME_ZONE,
                fix="datetime(..., tzinfo=timezone.utc)",
            )

    @property
    def topic_names(self) -> tuple[str, ...]:
        """The topics as a tuple; empty if a pattern names them."""
        return (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)

    @property
    def in_words(self) -> str:
        """The topics in a sentence."""
        return ", ".join(self.topic_names) if self.pattern is None else f"topics like {self.pattern}"

    @property
    def subscription(self) -> dict[str, str]:
        """The topics as options of Spark's Kafka source."""
        return {"subscribe": ",".join(self.topic_names)} if self.pattern is None else {"subscribePattern": self.pattern}

    @property
    def starting_options(self) -> dict[str, str]:
        """``starting`` as options of Spark's Kafka source."""
        if isinstance(self.starting, datetime):
            # By default, Spark fails for a partition without a record since then.
            return {
                "startingTimestamp": str(epoch_milliseconds(self.starting)),
                "startingOffsetsByTimestampStrategy": "latest",
            }
        return {"startingOffsets": self.starting if isinstance(self.starting, str) else json.dumps(self.starting)}


@dataclass(frozen=True)
class KafkaSink:
    """Where the rows of the result go: one Kafka record each, by default a JSON object of all columns.

    Attributes:
        topic: The topic. With ``topic_column`` too, the topic of the rows in which that column is null.
        key: The column whose value becomes the record's key; without one, records have no key.
        topic_column: The column that names each row's topic; it is not written.
        value: The string or binary column that is written as it is, instead of JSON.
        headers: The record's headers: header names and the columns they are taken from; or one column of type
            ``array<struct<key string, value binary>>``, which is then not part of the JSON.
        event_time: The timestamp column that the lineage headers are to carry as event time.
        options: Any option of Spark's Kafka sink; those of the Kafka producer itself begin with ``kafka.``.
    """

    topic: str | None = None
    key: str | None = None
    _: KW_ONLY
    topic_column: str | None = None
    value: str | None = None
    headers: str | Mapping[str, str] | None = None
    event_time: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.topic is not None:
            _require_topics((self.topic,))
        elif self.topic_column is None:
            raise DefinitionError(
                "the sink names no topic", fix='KafkaSink("decisions", ...) or KafkaSink(topic_column="target", ...)'
            )
        if isinstance(self.headers, Mapping):
            taken = sorted(name for name in self.headers if name.startswith(HEADER_PREFIX))
            if taken:
                raise DefinitionError(
                    f"the header {taken[0]!r} is reserved for Tailrace",
                    fix="use a name that does not start with tailrace.",
                )
            object.__setattr__(self, "headers", dict(self.headers))
        object.__setattr__(self, "options", _checked_options(self.options, _OWNED_SINK_OPTIONS, "KafkaSink"))

    @property
    def destination(self) -> dict[str, str]:
        """The fixed topic as options of Spark's Kafka sink; empty if a column names it."""
        return {"topic": self.topic} if self.topic is not None and self.topic_column is None else {}

    @property
    def in_words(self) -> str:
        """The topics in a sentence."""
        named = [self.topic] if self.topic else []
        return " or ".join([*named, *([f"the topic in {self.topic_column}"] if self.topic_column else [])])


@dataclass(frozen=True)
class Pipeline:
    """An ordinary DataFrame function between Kafka sources and a Kafka sink.

    Attributes:
        name: Names the query and its checkpoint folder.
        source: Where records come from; several sources give the function several DataFrames.
        transform: Takes the parsed records as a DataFrame and returns what is to be written.
        sink: Where the result goes.
        malformed: What happens to a record that cannot be read: ``"dead-letter"`` writes it, unchanged, to a topic of
            its own; ``"drop"`` only counts it; ``"fail"`` ends the query.
        python_errors: What happens if a Python function raises an exception, or its workers die: ``"fail"`` ends the
            query; ``"dead-letter"`` writes the unchanged record to the dead letters, and the query continues.
        dead_letters: The topic for dead letters; ``<name>.dead-letters`` by default. It is created if it is missing.
        lineage: Whether each output record carries its origin and event time in headers ``tailrace.*``. Without,
            nobody can tell from which record an output came, or how old it is.
    """

    name: str
    source: "KafkaSource | Sequence[KafkaSource]"
    transform: "Callable[..., DataFrame]"
    sink: KafkaSink
    _: KW_ONLY
    malformed: str = "dead-letter"
    python_errors: str = "fail"
    dead_letters: str | None = None
    lineage: bool = True

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise DefinitionError(
                f"invalid pipeline name {self.name!r}",
                why="the checkpoint folder and the query have this name",
                fix=NAME_FIX,
            )
        self._require_types()
        if self.malformed not in POLICIES:
            raise DefinitionError(
                f"pipeline {self.name!r}: invalid malformed={self.malformed!r}",
                fix=f"use one of {', '.join(POLICIES)}",
            )
        self._require_python_errors()
        if self.dead_letters is not None and self.dead_letter_topic is None:
            raise DefinitionError(
                f"pipeline {self.name!r} has a topic for dead letters, but malformed={self.malformed!r}",
                fix="remove one of them",
            )
        if not self.lineage and self.sink.event_time is not None:
            raise DefinitionError(
                f"pipeline {self.name!r} names an event_time for the lineage headers, but lineage=False",
                fix="remove one of them",
            )
        if self.dead_letter_topic is not None:
            _require_topics((self.dead_letter_topic,))
            if self.dead_letter_topic == self.sink.topic:
                raise DefinitionError(
                    f"pipeline {self.name!r} writes its results and its dead letters to topic {self.sink.topic!r}",
                    fix="choose another topic with dead_letters=...",
                )
        for topic, role in ((self.sink.topic, "writes"), (self.dead_letter_topic, "sends its dead letters")):
            if topic is not None and any(reads(source, topic) for source in self.sources):
                raise DefinitionError(
                    f"pipeline {self.name!r} {role} to topic {topic!r}, which it also reads",
                    why="it would process its own output forever",
                    fix="write to another topic",
                )

    @property
    def sources(self) -> tuple[KafkaSource, ...]:
        """The sources as a tuple."""
        return (self.source,) if isinstance(self.source, KafkaSource) else tuple(self.source)

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic for dead letters; None if there are none."""
        if "dead-letter" not in (self.malformed, self.python_errors):
            return None
        return self.dead_letters if self.dead_letters is not None else f"{self.name}.dead-letters"

    def _require_python_errors(self) -> None:
        if self.python_errors not in PYTHON_ERRORS:
            raise DefinitionError(
                f"pipeline {self.name!r}: invalid python_errors={self.python_errors!r}",
                fix=f"use one of {', '.join(PYTHON_ERRORS)}",
            )
        if self.python_errors == "dead-letter" and not self.lineage:
            raise DefinitionError(
                f"pipeline {self.name!r} has python_errors='dead-letter', but lineage=False",
                why="the dead letter is the source record of a row, which only lineage identifies",
                fix="remove one of them",
            )

    def _require_types(self) -> None:
        if not isinstance(self.source, KafkaSource):
            given = list(self.source) if isinstance(self.source, list | tuple) else []
            if not given or not all(isinstance(each, KafkaSource) for each in given):
                raise DefinitionError(
                    f"pipeline {self.name!r}: source= is a {type(self.source).__name__}, not a KafkaSource",
                    fix="source=tr.KafkaSource(...), or a list of them",
                )
            object.__setattr__(self, "source", tuple(given))
        if not isinstance(self.sink, KafkaSink):
            raise DefinitionError(
                f"pipeline {self.name!r}: sink= is a {type(self.sink).__name__}, not a KafkaSink",
                fix="sink=tr.KafkaSink(...)",
            )
        if not callable(self.transform):
            raise DefinitionError(
                f"pipeline {self.name!r}: transform= is a {type(self.transform).__name__}, not a function",
                fix="pass a function that takes a DataFrame and returns one",
            )


def _names(topics: object) -> tuple[str, ...]:
    if isinstance(topics, str):
        return (topics,)
    if not isinstance(topics, Iterable):
        raise DefinitionError(f"invalid topic name {topics!r}", fix='KafkaSource("payments", ...)')
    return tuple(topics)


def _checked_offsets(starting: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return a copy of the offsets, if given."""
    try:
        checked = {
            topic: {str(int(number)): int(offset) for number, offset in offsets.items()}
            for topic, offsets in starting.items()
        }
    except (AttributeError, TypeError, ValueError):
        checked = {}
    if not checked:
        raise OptionRefused(
            f"starting={starting!r} has no offsets per topic and partition",
            fix='use offsets such as {"payments": {"0": 17, "1": -2}}, where -2 is the earliest and -1 the latest',
        )
    return checked


def epoch_milliseconds(moment: datetime) -> int:
    """Return milliseconds since 1970, exactly."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def reads(source: KafkaSource, topic: str) -> bool:
    """Return whether a source reads a topic."""
    if source.pattern is not None:
        return re.fullmatch(source.pattern, topic) is not None
    return topic in source.topic_names


def _require_pattern(pattern: str, names: Sequence[str]) -> None:
    if names:
        raise DefinitionError("the source has both topics and a pattern", fix="remove one of them")
    try:
        re.compile(pattern)
    except (re.error, TypeError) as wrong:
        raise DefinitionError(
            f"invalid pattern={pattern!r}: not a regular expression in both Python and Java",
            why=str(wrong),
            fix='use only syntax that both share, such as "payments-.*"',
        ) from wrong


def _require_column_name(name: str | None, role: str) -> None:
    if name is not None and (not name or name.startswith(RESERVED_PREFIX)):
        raise DefinitionError(f"invalid column name {role}={name!r}", fix=f'{role}="kafka"')


def _require_topics(names: Sequence[str]) -> None:
    """Refuse an invalid topic name."""
    if not names:
        raise DefinitionError("the source names no topic", fix='KafkaSource("payments", ...)')
    for name in names:
        if not isinstance(name, str) or not _TOPIC.fullmatch(name) or name in (".", ".."):
            raise DefinitionError(
                f"invalid topic name {name!r}",
                fix=f"{NAME_FIX}, 249 characters at most",
            )
    if len(set(names)) != len(names):
        raise DefinitionError("the source names a topic twice", fix="name each topic once")


def _checked_options(given: Mapping[str, object], owned: Mapping[str, str], where: str) -> dict[str, str]:
    """Return the options as text; refuse those that the definition sets itself.

    A boolean or number is turned into Spark's spelling, as PySpark's own ``option`` does. Values may be secrets, so
    no error repeats one.
    """
    checked: dict[str, str] = {}
    for key, value in given.items():
        if key.lower() in owned:
            raise OptionRefused(f"{where}: option {key!r} is set elsewhere", fix=owned[key.lower()])
        checked[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return checked
