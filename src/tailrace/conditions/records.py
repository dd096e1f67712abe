"""Records that cannot be read, results that are too large, dead letters that cannot be written."""

import re
from collections.abc import Mapping
from dataclasses import replace

from tailrace.conditions.condition import Condition
from tailrace.conditions.text import root_cause
from tailrace.errors import DeadLettersFailed, RecordMalformed, RecordTooLarge

RECORD_MALFORMED = Condition(
    error=RecordMalformed,
    pattern=r"record (?P<record>\S+) is malformed: (?P<problem>.*)",
    what="query {query!r} ended: record {record} is malformed",
    why="{problem}",
    fix="fix the producer, or set malformed='dead-letter'",
)


def _sizes(match: re.Match[str]) -> Mapping[str, object]:
    groups = match.groupdict()
    record, topic, limit = groups.get("record"), groups.get("topic"), groups.get("limit")
    return {
        "result": f"the result of record {record}" if record else "a result",
        "size": int(groups["size"]),
        **({"limit": int(limit)} if limit else {}),
        **({"sink": f"topic {topic!r}"} if topic else {}),
    }


_MEASURED = (
    r"(?:the result of record (?P<record>\S+)|a result) for topic (?P<topic>\S+) has (?P<size>\d+) bytes, more than "
)
_ALTER_TOPIC = "kafka-configs --alter --entity-type topics --entity-name {topic} --add-config max.message.bytes={size}"


def _smaller_or(way: str) -> str:
    return f"make the result smaller, or {way}: {_ALTER_TOPIC}"


TOO_LARGE_FOR_PRODUCER = Condition(
    error=RecordTooLarge,
    pattern=_MEASURED + r"max\.request\.size=(?P<limit>\d+)",
    what="{result} is too large for {sink}",
    why="it has {size:,} bytes, and the producer's max.request.size is {limit:,}",
    fix=_smaller_or("set KafkaSink(options={{'kafka.max.request.size': '{size}'}}) and raise the topic's limit"),
    details=_sizes,
)
TOO_LARGE_FOR_TOPIC = replace(
    TOO_LARGE_FOR_PRODUCER,
    pattern=_MEASURED + r"max\.message\.bytes=(?P<limit>\d+)",
    why="it has {size:,} bytes, and the topic's max.message.bytes is {limit:,}",
    fix=_smaller_or("raise the topic's limit"),
)
_REFUSED = r"(?s)RecordTooLargeException.*?The message is (?P<size>\d+) bytes when serialized which is larger than "
REFUSED_BY_PRODUCER = replace(
    TOO_LARGE_FOR_PRODUCER,
    pattern=_REFUSED + r"(?P<limit>\d+)",
    fix=_smaller_or("set the sink's option kafka.max.request.size to {size} and raise the topic's limit"),
)
REFUSED_BY_BUFFER = replace(
    REFUSED_BY_PRODUCER,
    pattern=_REFUSED + "the total memory buffer",
    why="it has {size:,} bytes, more than the producer's buffer.memory",
    fix="make the result smaller, or set the sink's option kafka.buffer.memory to more than {size}",
)
REFUSED_BY_BROKER = replace(
    TOO_LARGE_FOR_TOPIC,
    pattern=r"RecordTooLargeException",
    why="the broker refused it: after the producer's compression, if any, it exceeds the topic's max.message.bytes",
    defaults={"result": "a result", "size": "BYTES"},
    details=None,
)


def _cause_of_dead_letters(match: re.Match[str]) -> Mapping[str, str]:
    # A task's listeners report the exception as a suppressed one, whose causes are indented.
    return {"cause": root_cause(re.sub(r"^\tCaused by", "Caused by", match.string, flags=re.MULTILINE))}


DEAD_LETTERS_FAILED = Condition(
    error=DeadLettersFailed,
    pattern=r"dead letters could not be written to (?P<topic>\S+)",
    what="query {query!r} ended because its dead letters could not be written to {topic}",
    why="{cause}",
    fix="check that the topic exists and that the query may write to it, then start again: no record is lost",
    details=_cause_of_dead_letters,
)
DEAD_LETTER_TOO_LARGE = replace(
    DEAD_LETTERS_FAILED,
    pattern=rf"(?s){DEAD_LETTERS_FAILED.pattern}.*RecordTooLarge",
    fix="raise KafkaSink(options={{'kafka.max.request.size': ...}}) and the topic's max.message.bytes",
)
