"""The names of hidden columns and of headers, and how Spark reads a column's name literally."""

from enum import StrEnum

from tailrace.pipeline import HEADER_PREFIX, RESERVED_PREFIX


class Header(StrEnum):
    """The headers that the engine writes; ``jvm/sql/HeaderNames.scala`` has the same."""

    TOPIC = HEADER_PREFIX + "topic"
    PARTITION = HEADER_PREFIX + "partition"
    OFFSET = HEADER_PREFIX + "offset"
    EVENT_TIME = HEADER_PREFIX + "event_time"
    ID = HEADER_PREFIX + "id"
    REASON = HEADER_PREFIX + "reason"
    ERROR = HEADER_PREFIX + "error"
    PIPELINE = HEADER_PREFIX + "pipeline"
    TIME = HEADER_PREFIX + "time"
    ATTEMPT = HEADER_PREFIX + "attempt"


TOPIC, PARTITION, OFFSET, EVENT_TIME, SOURCE, RAW = (
    RESERVED_PREFIX + name for name in ("topic", "partition", "offset", "event_time", "source", "raw")
)
"""The hidden columns, which the engine carries to the output; ``jvm/sql/Lineage.scala`` has the same."""
OWN_HEADERS = RESERVED_PREFIX + "headers"
"""The headers that the user's function returns, until the lineage headers join them."""


def quoted(column: str) -> str:
    """Return a column's name as Spark reads it literally, dots included."""
    return "`" + column.replace("`", "``") + "`"
