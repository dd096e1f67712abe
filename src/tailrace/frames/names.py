"""The names of the hidden columns, and how Spark reads a column's name literally."""

from tailrace.pipeline import RESERVED_PREFIX

TOPIC, PARTITION, OFFSET, EVENT_TIME, RAW = (
    RESERVED_PREFIX + name for name in ("topic", "partition", "offset", "event_time", "raw")
)
"""The hidden columns, which the engine carries to the output."""
OWN_HEADERS = RESERVED_PREFIX + "headers"
"""The headers that the user's function made, until the lineage headers join them."""


def quoted(column: str) -> str:
    """Return a column's name as Spark reads it literally, dots included."""
    return "`" + column.replace("`", "``") + "`"
