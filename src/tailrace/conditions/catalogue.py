"""All conditions, in the order in which a text is compared with them."""

import re

from tailrace.conditions import analysis, checkpoints, kafka, operators, python, records, sinks, sources, spark
from tailrace.conditions.condition import Condition

CATALOGUE: tuple[Condition, ...] = (
    # A user's exception may quote any of the others, and a dead letter has its own reason.
    python.FUNCTION_FAILED,
    python.FUNCTION_RAISED,
    python.WORKERS_ENDED,
    records.RECORD_MALFORMED,
    records.TOO_LARGE_FOR_PRODUCER,
    records.TOO_LARGE_FOR_TOPIC,
    records.DEAD_LETTER_TOO_LARGE,
    records.DEAD_LETTERS_FAILED,
    *kafka.BROKER_REFUSALS.values(),
    sinks.TOPIC_NULL,
    sinks.TOPIC_INVALID,
    sinks.TOPIC_UNKNOWN,
    sinks.SINK_REFUSED,
    sinks.OUTPUT_MODE_REFUSED,
    operators.PYTHON_FUNCTION_REFUSED,
    operators.OPERATOR_REFUSED,
    operators.STATE_BELOW_UNION,
    sources.SOURCE_REFUSED,
    sources.SOURCE_TWICE,
    *sources.SOURCE_OPTIONS_REFUSED,
    spark.SLOTS_MISSING,
    spark.SLOTS_MISSING_UNCOUNTED,
    spark.SETTING_REFUSED,
    checkpoints.DISK_FULL,
    checkpoints.CHECKPOINT_FORMAT_OLD,
    checkpoints.STATE_CHANGED,
    checkpoints.SOURCES_CHANGED,
    *analysis.RULES,
    analysis.OTHER_RULE,
    *sources.RECORDS_LOST.values(),
    sources.OFFSET_REFUSED,
    sources.TOPICS_MISSING,
    sources.TOPIC_DELETED,
    sources.RECORDS_GONE,
    spark.EXECUTOR_LOST,
    spark.REALTIME_REFUSED,
    # A dead letter that is too large names the same exception.
    records.REFUSED_BY_PRODUCER,
    records.REFUSED_BY_BUFFER,
    records.REFUSED_BY_BROKER,
    spark.UNKNOWN,
)
"""The first match wins; the last one matches everything."""


def find_condition(text: str) -> tuple[Condition, re.Match[str]]:
    """Find the condition in everything that Spark printed."""
    return next((condition, match) for condition in CATALOGUE if (match := condition.search(text)))
