"""A running count and total per key."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.traffic.events import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(events: "DataFrame") -> "DataFrame":
    """The record that caused an update is the newest of its key: numbers and times only grow."""
    from pyspark.sql import functions as F

    return events.groupBy("key").agg(
        F.max("id").alias("id"),
        F.max("sent_ns").alias("sent_ns"),
        F.count("*").alias("count"),
        F.sum("amount").alias("total"),
    )


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """Keys whose last count or total is not that of everything that was sent."""
    last: dict[str, Mapping[str, Any]] = {}
    for each in outputs:
        if each["key"] not in last or each["count"] > last[each["key"]]["count"]:
            last[each["key"]] = each
    counts: dict[str, int] = defaultdict(int)
    totals: dict[str, float] = defaultdict(float)
    for number in sent:
        content = event(number)
        counts[content.key] += 1
        totals[content.key] += content.amount
    return sum(
        key not in last or last[key]["count"] != count or abs(last[key]["total"] - totals[key]) > 0.01
        for key, count in counts.items()
    )
