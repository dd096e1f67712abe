"""Translate what ended a query into an error."""

import re

from tailrace.conditions.catalogue import find_condition
from tailrace.conditions.condition import or_microbatch
from tailrace.conditions.text import line_of, root_cause, sentence
from tailrace.errors import TailraceError


def translate_failure(name: str, text: str, sink_topic: str = "", *, runs_in_microbatch: bool = False) -> TailraceError:
    """Return the error for a query that Spark ended; its code is that of the finding that a check would report.

    Args:
        name: The query's name.
        text: Everything that Spark printed, stack traces included; ``--verbose`` shows it.
        sink_topic: The topic that the query writes to, if it is known.
        runs_in_microbatch: Whether Spark accepts the query in micro-batch, as far as known.
    """
    condition, match = find_condition(text)
    message = condition.message(**{**values_of(name, match, sink_topic), **condition.matched_values(match)})
    error = condition.error(
        message.what if condition.names_query else f"query {name!r}: {message.what}",
        why=message.why,
        fix=or_microbatch(message.fix) if condition.only_realtime and runs_in_microbatch else message.fix,
        detail=text,
    )
    error.code = condition.code
    return error


def values_of(name: str, match: re.Match[str], sink_topic: str = "") -> dict[str, str]:
    """Return the values that every condition may use.

    Returns:
        ``query``: its name. ``sentence``: Spark's sentence in the line that was recognised. ``cause``: the innermost
        cause in the text. ``sink``: the topic that the query writes to. ``topic``: that topic in a command.
    """
    return {
        "query": name,
        "sentence": sentence(line_of(match)),
        "cause": root_cause(match.string),
        "sink": f"topic {sink_topic!r}" if sink_topic else "its topic",
        "topic": sink_topic or "TOPIC",
    }
