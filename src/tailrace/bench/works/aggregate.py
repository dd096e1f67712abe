"""A running count and total per key."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.bench.works.compare import differs
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
        # A result without a key or a count is nobody's, so that its key's last one is missing or too small.
        key, count = each.get("key", ""), each.get("count") or 0
        if key not in last or count > last[key]["count"]:
            last[key] = {**each, "count": count}
    counts: dict[str, int] = defaultdict(int)
    totals: dict[str, float] = defaultdict(float)
    for number in sent:
        content = event(number)
        counts[content.key] += 1
        totals[content.key] += content.amount
    return sum(
        key not in last or last[key]["count"] != count or differs(last[key].get("total"), totals[key], 0.01)
        for key, count in counts.items()
    )
