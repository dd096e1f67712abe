"""Sinks that real time cannot write, output modes, topics that the rows name."""

from tailrace.conditions.condition import Condition
from tailrace.errors import QueryFailed, QueryRefused, TopicMissing

SINK_REFUSED = Condition(
    error=QueryRefused,
    code="SINK_REFUSED",
    spark=(
        "STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST",
        "STREAMING_REAL_TIME_MODE.SINK_NOT_SUPPORTED",
    ),
    pattern=(r"(?:SINK_NOT_SUPPORTED\].*?\bThe |IN_ALLOWLIST\].*?\bThe sink\(s\): )(?:[\w$]+\.)*(?P<sink>[\w$]+)"),
    what="the sink {sink!r} cannot be written in real time",
    why="it takes whole batches, and real time writes row by row",
    fix='write to Kafka: .format("kafka")',
    only_realtime=True,
)
OUTPUT_MODE_REFUSED = Condition(
    error=QueryRefused,
    code="OUTPUT_MODE_REFUSED",
    spark=("STREAMING_REAL_TIME_MODE.OUTPUT_MODE_NOT_SUPPORTED",),
    pattern=r"MODE\.OUTPUT_MODE_NOT_SUPPORTED(?:.*?The output mode (?P<outputMode>\w+))?",
    what="the output mode {outputMode} cannot run in real time",
    why="real time writes each result as it changes, which is update mode",
    fix='use .outputMode("update") on the writer',
    only_realtime=True,
    defaults={"outputMode": "of the query"},
)
TOPIC_NULL = Condition(
    error=QueryFailed,
    pattern=r"(?i)contains a null topic|null topic present in the data",
    what="a row of query {query!r} has no topic: its topic column is null",
    fix='fill that column, or name a topic for such rows: KafkaSink("other", topic_column=...)',
)
TOPIC_INVALID = Condition(
    error=QueryFailed,
    pattern=r"InvalidTopicException",
    what="a row of query {query!r} has an invalid topic name",
    why="{cause}",
    fix="use letters, digits, dots, dashes and underscores, at most 249 of them",
)
TOPIC_UNKNOWN = Condition(
    error=TopicMissing,
    pattern=r"Topic (?P<topic>\S+) not present in metadata after",
    what="query {query!r} has a row for topic {topic!r}, which does not exist",
    why="the broker did not report the topic within the producer's time limit",
    fix="create it: tailrace broker topic {topic}; or correct the topic column",
)
