"""What the lanes of a benchmark compute: the same in every engine, one result for each record.

To add a work: a name in :class:`Work` and an entry in ``_DEFINITIONS``.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tailrace.measure import python_work
from tailrace.measure.traffic.records import KEYS, event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "id long, key string, amount double, sent_ns long"
LEVELS = 7

Outputs = Sequence[Mapping[str, Any]]


class Work(StrEnum):
    """A kind of work.

    Every input is ``{"id", "key", "amount", "sent_ns", "pad"}``, keyed by ``key``. Every output carries the ``id`` and
    the ``sent_ns`` of the record that caused it, so any consumer can time it.
    """

    STATELESS = "stateless"
    """Parse, filter, compute one column: ``doubled`` is twice the amount."""
    AGGREGATE = "aggregate"
    """A running ``count`` and ``total`` of the amounts per key, one update per record."""
    PYTHON = "python"
    """Like stateless, but a Python function computes ``score``."""
    WINDOW = "window"
    """A ``count`` per key and minute of event time, one update per record."""
    DEDUPE = "dedupe"
    """Each ``id`` once."""
    JOIN = "join"
    """A ``level`` for each key from a static table of a thousand rows."""

    @property
    def merges(self) -> bool:
        """Whether an engine that works in batches emits one update for several records."""
        return _DEFINITIONS[self].merges

    @property
    def is_stateful(self) -> bool:
        """Whether it keeps state between records."""
        return _DEFINITIONS[self].is_stateful


def transform_of(work: Work) -> "Callable[[DataFrame], DataFrame]":
    """Return the DataFrame function of a work."""
    return _DEFINITIONS[work].transform


def count_wrong(work: Work, outputs: Outputs, sent: Sequence[int]) -> int:
    """Count the wrong results, given the numbers of the records that were sent."""
    return _DEFINITIONS[work].count_wrong(outputs, sent)


def _stateless(events: "DataFrame") -> "DataFrame":
    """Every event has an amount of at least zero, so the filter drops none."""
    return events.where("amount >= 0").selectExpr("id", "sent_ns", "key", "amount * 2 as doubled")


def _wrong_stateless(outputs: Outputs, _sent: Sequence[int]) -> int:
    return sum(_differs(each.get("doubled"), 2 * event(each["id"]).amount, 1e-6) for each in outputs)


def _aggregate(events: "DataFrame") -> "DataFrame":
    """The newest record of a key caused its update: numbers and times only grow."""
    from pyspark.sql import functions as F

    return events.groupBy("key").agg(
        F.max("id").alias("id"),
        F.max("sent_ns").alias("sent_ns"),
        F.count("*").alias("count"),
        F.sum("amount").alias("total"),
    )


def _wrong_aggregate(outputs: Outputs, sent: Sequence[int]) -> int:
    """Count the keys whose last count or total does not match everything that was sent."""
    last: dict[str, Mapping[str, Any]] = {}
    for each in outputs:
        # A result without a key or a count is of no key, so the last one of its key is missing or too small.
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
        key not in last or last[key]["count"] != count or _differs(last[key].get("total"), totals[key], 0.01)
        for key, count in counts.items()
    )


def _wrong_python(outputs: Outputs, _sent: Sequence[int]) -> int:
    return sum(_differs(each.get("score"), python_work.score(event(each["id"]).amount), 1e-9) for each in outputs)


def _window(events: "DataFrame") -> "DataFrame":
    """Event time is the intended send time."""
    from pyspark.sql import functions as F

    timed = events.withColumn("at", F.timestamp_micros(F.expr("sent_ns div 1000"))).withWatermark("at", "1 minute")
    counted = timed.groupBy(F.window("at", "1 minute"), "key").agg(
        F.max("id").alias("id"), F.max("sent_ns").alias("sent_ns"), F.count("*").alias("count")
    )
    return counted.select("id", "sent_ns", "key", F.unix_millis("window.start").alias("minute"), "count")


def _wrong_window(outputs: Outputs, sent: Sequence[int]) -> int:
    """Sum the differences, by key, between the last counts of all windows and the number of records sent."""
    last: dict[tuple[str, int], int] = {}
    for each in outputs:
        place = (each.get("key", ""), each.get("minute", -1))
        last[place] = max(last.get(place, 0), each.get("count") or 0)
    missing = Counter(event(number).key for number in sent)
    for (key, _), count in last.items():
        missing[key] -= count
    return sum(abs(difference) for difference in missing.values())


def _dedupe(events: "DataFrame") -> "DataFrame":
    """The load repeats nothing, so every record passes; Spark still looks up each one in its state."""
    return events.dropDuplicates(["id"]).select("id", "sent_ns", "key")


def _wrong_dedupe(outputs: Outputs, _sent: Sequence[int]) -> int:
    repeated = len(outputs) - len({each["id"] for each in outputs})
    misplaced = [each for each in outputs if each.get("key") != event(each["id"]).key]
    return repeated + len(misplaced)


def _join(events: "DataFrame") -> "DataFrame":
    """A broadcast join; the table has a row for each key."""
    from pyspark.sql import functions as F

    numbers = events.sparkSession.range(KEYS)
    table = numbers.selectExpr("format_string('k-%04d', id) as key", f"id % {LEVELS} as level")
    return events.join(F.broadcast(table), "key", "left").select("id", "sent_ns", "key", "level")


def _wrong_join(outputs: Outputs, _sent: Sequence[int]) -> int:
    return sum(each.get("level") != event(each["id"]).key_number % LEVELS for each in outputs)


def _differs(figure: Any, right: float, tolerance: float) -> bool:
    """Return whether a figure is wrong, as a missing figure, null and NaN are."""
    return not (isinstance(figure, int | float) and abs(figure - right) <= tolerance)


@dataclass(frozen=True)
class _Definition:
    transform: "Callable[[DataFrame], DataFrame]"
    count_wrong: Callable[[Outputs, Sequence[int]], int]
    is_stateful: bool = False
    merges: bool = False


_DEFINITIONS: Mapping[Work, _Definition] = {
    Work.STATELESS: _Definition(_stateless, _wrong_stateless),
    Work.AGGREGATE: _Definition(_aggregate, _wrong_aggregate, is_stateful=True, merges=True),
    Work.PYTHON: _Definition(python_work.transform, _wrong_python),
    Work.WINDOW: _Definition(_window, _wrong_window, is_stateful=True, merges=True),
    Work.DEDUPE: _Definition(_dedupe, _wrong_dedupe, is_stateful=True),
    Work.JOIN: _Definition(_join, _wrong_join),
}
