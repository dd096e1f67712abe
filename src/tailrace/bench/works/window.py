"""A count per key and minute of event time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.traffic.events import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(events: "DataFrame") -> "DataFrame":
    """Event time is the intended send time."""
    from pyspark.sql import functions as F

    timed = events.withColumn("at", F.timestamp_micros(F.expr("sent_ns div 1000"))).withWatermark("at", "1 minute")
    counted = timed.groupBy(F.window("at", "1 minute"), "key").agg(
        F.max("id").alias("id"), F.max("sent_ns").alias("sent_ns"), F.count("*").alias("count")
    )
    return counted.select("id", "sent_ns", "key", F.unix_millis("window.start").alias("minute"), "count")


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """How far the last counts of each key, all its windows together, are from the number of records that were sent."""
    last: dict[tuple[str, int], int] = {}
    for each in outputs:
        place = (each.get("key", ""), each.get("minute", -1))
        last[place] = max(last.get(place, 0), each.get("count") or 0)
    missing = Counter(event(number).key for number in sent)
    for (key, _), count in last.items():
        missing[key] -= count
    return sum(abs(difference) for difference in missing.values())
