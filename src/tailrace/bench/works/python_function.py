"""A score for each event, made by a function in Python."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.bench.works.compare import differs
from tailrace.traffic.events import event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def score(amount: float) -> float:
    """What the function computes, in every engine."""
    return min(1.0, math.log1p(amount) / 10)


def transform(events: "DataFrame") -> "DataFrame":
    """An ordinary `@udf`."""
    from pyspark.sql import functions as F

    scored = F.udf(score, "double")
    return events.where("amount >= 0").select("id", "sent_ns", "key", scored("amount").alias("score"))


def count_wrong(outputs: Sequence[Mapping[str, Any]], sent: Sequence[int]) -> int:
    """Results with another score."""
    return sum(differs(each.get("score"), score(event(each["id"]).amount), 1e-9) for each in outputs)
