"""Parse, filter, compute a column."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.bench.works.compare import differs
from tailrace.traffic.events import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transform(events: "DataFrame") -> "DataFrame":
    """Every event has an amount of at least zero, so none is dropped."""
    return events.where("amount >= 0").selectExpr("id", "sent_ns", "key", "amount * 2 as doubled")


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """Results whose amount is not twice what was sent."""
    return sum(differs(each.get("doubled"), 2 * event(each["id"]).amount, 1e-6) for each in outputs)
