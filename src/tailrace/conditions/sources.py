"""Sources that real time cannot read, options that it refuses, records that are gone."""

import re
from collections.abc import Mapping

from tailrace.conditions.condition import Condition
from tailrace.errors import DataLost, QueryRefused, TopicMissing

SOURCE_REFUSED = Condition(
    error=QueryRefused,
    code="SOURCE_REFUSED",
    spark=("STREAMING_REAL_TIME_MODE.INPUT_STREAM_NOT_SUPPORTED",),
    pattern=r"INPUT_STREAM_NOT_SUPPORTED\].*?The input stream (?:[\w$]+\.)*(?P<source>[\w$]+)",
    what="the source {source} cannot be read in real time",
    why="real time needs a source that Spark can read record by record; of Spark's own sources that is Kafka",
    fix="write the records to a Kafka topic and read that",
    only_realtime=True,
)
SOURCE_TWICE = Condition(
    error=QueryRefused,
    code="SOURCE_TWICE",
    spark=("STREAMING_REAL_TIME_MODE.IDENTICAL_SOURCES_IN_UNION_NOT_SUPPORTED",),
    what="a union of a source with itself cannot run in real time",
    why="both sides are the same read, and real time runs a read only once",
    fix="read the topic twice, with two readStream; or produce the rows in one pass (explode, when)",
    only_realtime=True,
)


def _option(name: str, why: str) -> Condition:
    return Condition(
        error=QueryRefused,
        code="SOURCE_OPTION_REFUSED",
        pattern=rf"(?i)\b(?P<option>{name}) is not compatible with real time mode",
        what="the source option {option} cannot be used in real time",
        why=why,
        fix="unset {option}",
        only_realtime=True,
    )


_WAITS = "it makes a batch wait for records, and real time reads each record as it arrives"
SOURCE_OPTIONS_REFUSED = (
    _option("maxOffsetsPerTrigger", "it limits the records of a batch, and a real-time batch has a time limit instead"),
    _option("minOffsetsPerTrigger|maxTriggerDelay", _WAITS),
    _option("minPartitions", "it splits a partition among tasks, and in real time each partition has one task"),
    _option("endingTimestamp", "it ends the reading, and a real-time query has no end"),
    _option(r"\w+", "Spark's Kafka source refuses it"),
)
TOPICS_MISSING = Condition(
    error=TopicMissing,
    pattern=r"TAILRACE_TOPICS_MISSING (?P<topics>[\w., -]+?)\.(?:\s|$)",
    what="query {query!r} reads a topic that no longer exists: {topics}",
    why="it was deleted, or this user may not describe it any more",
    fix="create the topic again and start the query with --on-data-loss warn (on_data_loss='warn'), "
    "or read another topic",
)
"""The engine's text; ``jvm/kafka/RecordsLost.scala`` writes it."""
TOPIC_DELETED = Condition(
    error=TopicMissing,
    pattern=r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION",
    what="a topic of query {query!r} no longer exists",
    why="{cause}",
    fix="create the topic again, or name another one in the pipeline",
)
_LOST = r"TAILRACE_RECORDS_LOST {kind} in (?P<topic>\S+): (?P<offsets>[\w, ]+)\."
"""The engine's text; ``jvm/kafka/RecordsLost.scala`` writes it."""
_ACCEPT = "to continue {continues}, start it with --on-data-loss warn (on_data_loss='warn')"


def _lost(kind: str, what: str, why: str, continues: str) -> Condition:
    return Condition(
        error=DataLost,
        pattern=_LOST.format(kind=kind),
        what=what,
        why=why,
        fix=_ACCEPT,
        defaults={"continues": continues},
    )


RECORDS_LOST: Mapping[str, Condition] = {
    "recreated": _lost(
        "recreated",
        "topic {topic!r} was deleted and created again",
        "the old topic was read to offset {offsets}; later records are lost if there were any",
        "at the beginning of the new topic",
    ),
    "deleted": _lost(
        "deleted",
        "{topic} has deleted records that the query had not read",
        "the topic's retention, or a command, removed the offsets {offsets}",
        "with the first record that is left",
    ),
    "shorter": _lost(
        "shorter",
        "{topic} ends before the query's position",
        "the query's position and the partition's end are {offsets}: the brokers lost records, or the topic was "
        "recreated before Tailrace recorded its id",
        "at the end of the partition, without the records before it",
    ),
    "divergent": Condition(
        error=DataLost,
        pattern=_LOST.format(kind="divergent"),
        what="{topic} has other records now than those that the query has read",
        why="the offsets {offsets} were written again: a broker without the latest records became the leader",
        fix="start the query again: it continues at its position, without these records. To let a running query read "
        "them, start it with --on-data-loss warn (on_data_loss='warn')",
        defaults={"continues": "with the first of the new records"},
    ),
}
"""Records that are gone, by the engine's name for the reason."""


OFFSET_REFUSED = Condition(
    error=DataLost,
    pattern=_LOST.format(kind="refused"),
    what="{topic} cannot be read at the query's position",
    why="its brokers refuse offset {offsets}, although it is between the first and the last offset",
    fix="compare the replicas of the partition: its brokers disagree. When they agree, start the query again",
)


def _partition(match: re.Match[str]) -> Mapping[str, str]:
    """Return the partition that Spark's connector names, in its different ways."""
    named = re.search(r"(?i)(?:topic ?partition:?|partition) (?P<name>[\w.-]+-\d+)", match.string)
    return {"topic": named["name"] if named else "a topic"}


RECORDS_GONE = Condition(
    error=DataLost,
    pattern=r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|[Ss]ome data may have been (?:lost|missed)",
    what="{topic} no longer has records that query {query!r} has not read",
    why="the topic was deleted and created again, or its retention removed them",
    fix=_ACCEPT,
    details=_partition,
    defaults={"continues": "with the records that are left"},
)
