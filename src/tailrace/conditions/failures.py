"""What Spark, Java, Kafka or a Python worker said, as one sentence about the user's query."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.errors import (
    AuthenticationFailed,
    CheckpointFormatOld,
    CheckpointOutgrown,
    CheckpointUnwritable,
    DeadLettersFailed,
    QueryFailed,
    QueryRefused,
    RecordMalformed,
    RecordTooLarge,
    SettingRefused,
    SlotsMissing,
    TailraceError,
    TlsFailed,
    TopicMissing,
    UserCodeFailed,
)
from tailrace.kafka.failures import JAVA_REFUSALS, java_cause
from tailrace.worker.failures import is_library_file, is_user_file

_PYTHON_OPERATOR = re.compile(r"\.python\.|EvalPython|InPandas|InArrow|InPySpark")
_WHERE = re.compile(r" \([^()]+ line \d+\)$")
_OWN_EXCEPTION = re.compile(r"^tailrace\.worker\.failures\.FunctionFailed: ")
_TOO_LARGE_FOR_PRODUCER = re.compile(r"The message is (\d+) bytes when serialized which is larger than (\d+)")
_OF_WHAT = {"max.request.size": "the producer's", "max.message.bytes": "the topic's"}
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")


@dataclass(frozen=True)
class _Known:
    """A failure that can be told in the user's words, recognised by what Spark printed."""

    pattern: re.Pattern[str]
    tell: Callable[[str, re.Match[str], str], TailraceError]
    only_realtime: bool = False
    """Whether real time alone refuses it."""


def translate_failure(name: str, text: str, sink_topic: str = "", *, runs_in_microbatch: bool = False) -> TailraceError:
    """The error for a query that Spark ended.

    Args:
        name: The query's name.
        text: Everything that Spark said, stack traces included; it is kept for ``--verbose``.
        sink_topic: The topic that it writes to, if that is known.
        runs_in_microbatch: Whether Spark accepts the query in micro-batch, as far as known.
    """
    for known in _KNOWN:
        if found := known.pattern.search(text):
            failed = known.tell(name, found, text)
            if known.only_realtime and runs_in_microbatch:
                failed.fix += ", or run it with --mode microbatch"
            return failed
    if "RecordTooLargeException" in text:
        return _refused_as_too_large(name, sink_topic, text)
    return QueryFailed(
        f"query {name!r} failed",
        why=_root_cause(text),
        fix="--verbose shows the whole stack trace",
        detail=text,
    )


def _users_place(trace: str) -> str:
    """The last frame of the user's in a traceback, in words; or nothing."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in (\S+)', trace)
    own = [frame for frame in frames if is_user_file(frame[0]) and not is_library_file(frame[0])]
    return f" at {own[-1][0]} line {own[-1][1]} in {own[-1][2]}" if own else ""


def _function_failed(name: str, found: re.Match[str], text: str) -> TailraceError:
    """A Python function that the engine ran failed on a row: it says which, and on what."""
    function, record, message, trace = found.groups()
    on = f" on record {record}" if record else ""
    return UserCodeFailed(
        f"function {function} of query {name!r} failed{on}{_users_place(trace)}: {_WHERE.sub('', message)}",
        fix="fix that line, or let the pipeline go on without such records: python_errors='dead-letter'",
        detail=text,
    )


def _python_error(name: str, found: re.Match[str], text: str) -> TailraceError:
    """An exception inside a Python worker: the last frame of the user's, and its last line."""
    trace = found.group(1)
    place = _users_place(trace)
    after_last_frame = trace.rpartition('  File "')[2].splitlines()
    message = next(
        (line for line in after_last_frame if line.strip() and not line.startswith(" ") and '", line ' not in line), ""
    )
    return UserCodeFailed(
        f"a Python function of query {name!r} raised an exception{place}: {_OWN_EXCEPTION.sub('', message.strip())}",
        fix="fix that line; --verbose shows the whole stack trace",
        detail=text,
    )


def _workers_ended(name: str, found: re.Match[str], text: str) -> TailraceError:
    return UserCodeFailed(
        f"the Python workers of query {name!r} end whatever they are given",
        why="they crash, are killed, or have no memory: another one was started again and again",
        fix="call the function in a Python of its own, with the libraries that workers have",
        detail=text,
    )


def _not_allowed(name: str, found: re.Match[str], text: str) -> TailraceError:
    """An operator or sink that Spark does not run in real time."""
    if _PYTHON_OPERATOR.search(found.group(0)):
        return QueryRefused(
            f"query {name!r} calls a Python function of a kind that does not run in real time",
            why="@udf, @pandas_udf, arrow_udf, mapInPandas and mapInArrow do; functions on groups or tables do not",
            fix="use one of those, or a function of pyspark.sql.functions",
            detail=text,
        )
    classes = re.findall(r"org\.apache\.[\w.$]*\.([\w$]+)", found.group(0))
    plain = ", ".join(sorted({each.removesuffix("Exec").strip("$") for each in classes})) or "one of its operators"
    return QueryRefused(
        f"query {name!r} cannot run in real time: Spark does not support {plain} there",
        fix="remove that operation",
        detail=text,
    )


def _malformed(name: str, found: re.Match[str], text: str) -> TailraceError:
    return RecordMalformed(
        f"{found.group(1)}, so query {name!r} ended",
        why=found.group(2).strip(),
        fix="fix what sends it; or let the pipeline go on without such records: malformed='dead-letter'",
        detail=text,
    )


def _too_large(name: str, found: re.Match[str], text: str) -> TailraceError:
    """A result that the engine measured before Kafka would have refused it."""
    record, topic, size, setting, limit = found.groups()
    which = f"the result of record {record}" if record else "a result"
    return RecordTooLarge(
        f"{which} is too large for topic {topic!r}, so query {name!r} ended",
        why=f"it has {int(size):,} bytes, and {_OF_WHAT[setting]} {setting} is {int(limit):,}",
        fix=_larger(setting, topic, int(size)),
        detail=text,
    )


def _refused_as_too_large(name: str, topic: str, text: str) -> TailraceError:
    """A result that Kafka itself refused: the producer tells its size, a broker does not."""
    at = f"topic {topic!r}" if topic else "its topic"
    if found := _TOO_LARGE_FOR_PRODUCER.search(text):
        size, limit = map(int, found.groups())
        return RecordTooLarge(
            f"a result of query {name!r} is too large for {at}",
            why=f"it has {size:,} bytes, and the producer's max.request.size is {limit:,}",
            fix=_larger("max.request.size", topic or "TOPIC", size),
            detail=text,
        )
    return RecordTooLarge(
        f"a result of query {name!r} is too large for {at}",
        why="the broker refused it: as sent, compressed if the producer compresses, it is larger than the topic's "
        "max.message.bytes",
        fix=_larger("max.message.bytes", topic or "TOPIC", None),
        detail=text,
    )


def _larger(setting: str, topic: str, size: int | None) -> str:
    limit = str(size) if size is not None else "BYTES"
    of_topic = (
        f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config max.message.bytes={limit}"
    )
    if setting == "max.message.bytes":
        return f"make the result smaller, or let the topic take it: {of_topic}"
    return (
        f"make the result smaller, or set KafkaSink(options={{'kafka.max.request.size': '{limit}'}}) and let the topic "
        f"take it: {of_topic}"
    )


def _dead_letters(name: str, found: re.Match[str], text: str) -> TailraceError:
    return DeadLettersFailed(
        f"query {name!r} ended because its dead letters could not be written to {found.group(1)}",
        why=_root_cause(re.sub(r"^\tCaused by", "Caused by", text, flags=re.MULTILINE)),  # suppressed: indented
        fix=(
            "raise KafkaSink(options={'kafka.max.request.size': ...}) and the topic's max.message.bytes"
            if "RecordTooLarge" in text
            else "see that the topic is there and may be written to, and start it again: no record is lost"
        ),
        detail=text,
    )


def _broker_refuses(name: str, found: re.Match[str], text: str) -> TailraceError:
    """A connection, a login or a right that the broker refuses: one that was taken away, or that only Spark uses."""
    cause = java_cause(text)
    if cause is None:
        raise AssertionError("the pattern matches what has a cause")
    what, fix = {
        TlsFailed: (
            f"query {name!r} has no TLS connection to the Kafka broker",
            "see that kafka.ssl.truststore.* in options= of its source and sink fit the broker's certificate",
        ),
        AuthenticationFailed: (
            f"the Kafka broker does not accept the login of query {name!r}",
            "correct kafka.sasl.jaas.config in options= of its source and sink, and start it again: no record is lost",
        ),
    }.get(
        cause.kind,
        (
            f"query {name!r} lacks a right at the Kafka broker",
            "grant it: READ on the sources, WRITE on the sink; then start it again: no record is lost",
        ),
    )
    return cause.kind(what, why=cause.why, fix=fix, detail=text)


def _no_topic(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryFailed(
        f"a row of query {name!r} has no topic: its topic column is null",
        fix='fill that column, or name a topic for such rows: KafkaSink("other", topic_column=...)',
        detail=text,
    )


def _topic_invalid(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryFailed(
        f"a row of query {name!r} names a topic that cannot be one",
        why=_root_cause(text),
        fix="a topic's name has letters, digits, dots, dashes and underscores, 249 at most",
        detail=text,
    )


def _topic_unknown(name: str, found: re.Match[str], text: str) -> TailraceError:
    return TopicMissing(
        f"topic {found.group(1)!r}, which a row of query {name!r} is to be written to, does not exist",
        why="the broker did not know it within the producer's patience",
        fix=f"make it: tailrace broker topic {found.group(1)}; or correct the topic column",
        detail=text,
    )


def _slots(name: str, found: re.Match[str], text: str) -> TailraceError:
    numbers = re.search(r"needs (\d+) concurrent task slots.*?only (\d+)", text, re.DOTALL)
    needs = f" ({numbers.group(1)} needed, {numbers.group(2)} free)" if numbers else ""
    return SlotsMissing(
        f"query {name!r} needs more task slots than Spark has free{needs}",
        why="in real time all tasks of all stages run at once",
        fix="--master 'local[N]' with a larger N, fewer --shuffle-partitions, or stop other queries",
        detail=text,
    )


def _disk_full(name: str, found: re.Match[str], text: str) -> TailraceError:
    return CheckpointUnwritable(
        f"query {name!r} stopped because the disk is full",
        why="its progress could not be saved; what was saved before is intact",
        fix="free some space and start it again: it goes on from its last checkpoint",
        detail=text,
    )


def _topic_gone(name: str, found: re.Match[str], text: str) -> TailraceError:
    return TopicMissing(
        f"a topic of query {name!r} is not there any more",
        why=_root_cause(text),
        fix="make the topic again, or point the pipeline to another",
        detail=text,
    )


def _old_format(name: str, found: re.Match[str], text: str) -> TailraceError:
    return CheckpointFormatOld(
        f"the checkpoint of query {name!r} was written in format 1, which real time cannot continue",
        fix="use a fresh checkpoint for real time: --checkpoint DIR",
        detail=text,
    )


def _other_state(name: str, found: re.Match[str], text: str) -> TailraceError:
    return CheckpointOutgrown(
        f"the state in the checkpoint of query {name!r} does not fit what it computes now",
        why="its aggregates or keys have changed, or lineage was turned on or off, which their state holds, too",
        fix="undo that change, or start with a fresh checkpoint: --checkpoint DIR",
        detail=text,
    )


def _other_sources(name: str, found: re.Match[str], text: str) -> TailraceError:
    return CheckpointOutgrown(
        f"query {name!r} has another number of sources than its checkpoint",
        why="a checkpoint keeps offsets by position, so sources can be neither added nor removed",
        fix="undo that change, or start with a fresh checkpoint: --checkpoint DIR",
        detail=text,
    )


def _not_streamable(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryRefused(
        f"query {name!r} does what Spark cannot do with a stream",
        why=_root_cause(text.splitlines()[0]),
        fix="leave that operation out, or do it in a batch",
        detail=text,
    )


def _setting(name: str, found: re.Match[str], text: str) -> TailraceError:
    return SettingRefused(
        f"query {name!r} has a Spark setting that real time cannot work with",
        why=_root_cause(text),
        fix="leave that setting unset",
        detail=text,
    )


def _output_mode(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryRefused(
        f"query {name!r} is not in update mode, the only one that real time has",
        fix='.outputMode("update")',
        detail=text,
    )


def _unsupported_option(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryRefused(
        f"query {name!r}: option {found.group(1)} does not work in real time",
        fix=f"unset {found.group(1)}",
        detail=text,
    )


def _data_gone(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryFailed(
        f"records that query {name!r} has yet to read are no longer in the topic",
        why="the topic was deleted and made again, or its retention removed them before they were read",
        fix="start from a fresh checkpoint (--checkpoint DIR) to go on with what is there now",
        detail=text,
    )


def _refused_by_spark(name: str, found: re.Match[str], text: str) -> TailraceError:
    return QueryRefused(
        f"query {name!r} cannot run in real time",
        why=_root_cause(text),
        fix="change what Spark names; --verbose shows its whole message",
        detail=text,
    )


_KNOWN = (
    _Known(
        re.compile(
            r"Python function (.+?) failed(?: on record (\S+))?: ([^\n]*)\n((?:Traceback .+?)?)(?:\n\n|\n\tat |\Z)",
            re.DOTALL,
        ),
        _function_failed,
    ),
    _Known(
        re.compile(r"(Traceback \(most recent call last\):\n.+?)(?:\n\n|\n\tat |\Z)", re.DOTALL),
        _python_error,
    ),
    _Known(re.compile(r"Python worker exited unexpectedly"), _workers_ended),
    _Known(re.compile(r"(record \S+ is malformed): ([^\n]*)"), _malformed),
    _Known(
        re.compile(
            r"(?:the result of record (\S+)|a result) for topic (\S+) has (\d+) bytes, more than "
            r"(max\.request\.size|max\.message\.bytes)=(\d+)"
        ),
        _too_large,
    ),
    _Known(re.compile(r"dead letters could not be written to (\S+)"), _dead_letters),
    _Known(JAVA_REFUSALS, _broker_refuses),
    _Known(re.compile(r"contains a null topic|null topic present in the data", re.IGNORECASE), _no_topic),
    _Known(re.compile(r"InvalidTopicException"), _topic_invalid),
    _Known(re.compile(r"Topic (\S+) not present in metadata after"), _topic_unknown),
    _Known(re.compile(r"OPERATOR_OR_SINK_NOT_IN_ALLOWLIST[^\n]*"), _not_allowed, only_realtime=True),
    _Known(re.compile(r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT"), _slots),
    _Known(re.compile(r"No space left on device|Disk quota exceeded"), _disk_full),
    _Known(re.compile(r"STATE_STORE_\w*SCHEMA\w*|STATEFUL_OPERATOR\w*NOT_MATCH"), _other_state),
    _Known(re.compile(r"not supported (?:on|with|after|without|before|in)\b[^\n]*[Ss]treaming"), _not_streamable),
    _Known(re.compile(r"UNSUPPORTED_STREAMING|STREAMING_OUTPUT_MODE"), _not_streamable),
    _Known(re.compile(r"sources in the checkpoint offsets and now there are"), _other_sources),
    _Known(re.compile(r"CHECKPOINT_FORMAT_V1_NOT_SUPPORTED"), _old_format, only_realtime=True),
    _Known(re.compile(r"SQL_CONFIGURATION_NOT_SUPPORTED"), _setting),
    _Known(re.compile(r"STREAMING_REAL_TIME_MODE\.OUTPUT_MODE_NOT_SUPPORTED"), _output_mode),
    _Known(re.compile(r"(\w+) is not compatible with real time mode"), _unsupported_option, only_realtime=True),
    _Known(re.compile(r"UnknownTopicOrPartitionException|UNKNOWN_TOPIC_OR_PARTITION"), _topic_gone),
    _Known(re.compile(r"KAFKA_DATA_LOSS|OffsetOutOfRangeException|some data may have been lost"), _data_gone),
    _Known(re.compile(r"STREAMING_REAL_TIME_MODE\."), _refused_by_spark, only_realtime=True),
)


def _root_cause(text: str) -> str:
    """The innermost cause in a Java stack trace, in one line, without class names where there is a message."""
    causes = re.findall(r"^Caused by: (.+)$", text, re.MULTILINE)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = causes[-1] if causes else (lines[0] if lines else "Spark gave no reason")
    message = re.sub(r"^(?:[\w$]+\.)+[\w$]*(?:Exception|Error)[\w$]*: ", "", line)
    message = _CONDITION.sub("", message, count=1).strip()
    return re.sub(r"\s*SQLSTATE: \w+$", "", message)[:400]
