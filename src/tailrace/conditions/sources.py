"""Sources that real time cannot read, options that it refuses, records that are gone."""

from tailrace.conditions.condition import Condition
from tailrace.errors import QueryFailed, QueryRefused, TopicMissing

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
    fix="produce the rows in one pass (explode, when), or read the topic twice: two KafkaSource, two readStream",
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


_WAITS = "it makes a batch wait for records, and real time reads each record at once"
SOURCE_OPTIONS_REFUSED = (
    _option("maxOffsetsPerTrigger", "it limits the records of a batch, and a real-time batch has a time limit instead"),
    _option("minOffsetsPerTrigger|maxTriggerDelay", _WAITS),
    _option("minPartitions", "it splits a partition among tasks, and in real time each partition has one task"),
    _option("endingTimestamp", "it ends the reading, and a real-time query has no end"),
    _option(r"\w+", "Spark's Kafka source refuses it"),
)
TOPIC_DELETED = Condition(
    error=TopicMissing,
    pattern=r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION",
    what="a topic of query {query!r} no longer exists",
    why="{cause}",
    fix="create the topic again, or name another one in the pipeline",
)
RECORDS_DELETED = Condition(
    error=QueryFailed,
    pattern=r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|some data may have been lost",
    what="query {query!r} needs records that are no longer in the topic",
    why="the topic was deleted and created again, or its retention removed them before the query read them",
    fix="start with a fresh checkpoint to continue with the records that are there now: --checkpoint DIR",
)
