"""A level for each key, from a static table."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.traffic.events import KEYS, event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LEVELS = 7


def transform(events: "DataFrame") -> "DataFrame":
    """A broadcast join; the table has a row for each key."""
    from pyspark.sql import functions as F

    numbers = events.sparkSession.range(KEYS)
    table = numbers.selectExpr("format_string('k-%04d', id) as key", f"id % {LEVELS} as level")
    return events.join(F.broadcast(table), "key", "left").select("id", "sent_ns", "key", "level")


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """Results with another level than their key's."""
    return sum(each.get("level") != int(event(each["id"]).key.removeprefix("k-")) % LEVELS for each in outputs)
