"""Something that Spark refuses of any streaming query, in micro-batch too.

Anti-pattern:
    ``orderBy``, ``limit``, ``pivot``, ``countDistinct`` or a window function (``over``) on a stream, an aggregate after
    another, an outer join of two streams.

Best practice:
    What works in its place is in the finding: ``F.size(F.collect_set("id"))`` for a distinct count,
    ``F.sum(F.when(F.col("kind") == "a", F.col("amount")))`` for each value of a pivot.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.conditions.rewrites import PIVOT_INSTEAD
from tailrace.plan.refusal import Refusal
from tailrace.preflight.checks.operator_refused import FAMILIES, family_of, refused_operators
from tailrace.preflight.checks.operator_refused import check as operators_refused
from tailrace.preflight.checks.source_option_refused import is_option
from tailrace.preflight.finding import Finding, error
from tailrace.preflight.query import Query, where

CODE = "QUERY_REFUSED"
_OTHERS = ("STREAMING_REAL_TIME_MODE.", "TAILRACE_")
_CODES = re.compile(r"^\[[A-Z_.]+\] |\.? SQLSTATE: \w+$")


@dataclass(frozen=True)
class Rule:
    """A rule of Spark's: the user's word for what it refuses, and what works instead."""

    sentence: re.Pattern[str]
    title: str
    instead: str
    operators: tuple[str, ...] = ()
    """The plan nodes that OPERATOR_REFUSED reports for the same operation."""


def _rule(sentence: str, title: str, instead: str = "", *operators: str) -> Rule:
    return Rule(re.compile(sentence), title, instead or FAMILIES[operators[0]].instead, operators)


_TWO_AGGREGATES = r"Detected pattern of possible 'correctness' issue"
_BOTH_SIDES = "union both sides with a column that names the side, and aggregate by the key"
_RULES = (
    _rule(r"^Sorting is not supported", "a sort cannot run on a stream", "", "Sort", "TakeOrderedAndProject"),
    _rule(r"^Limits are not supported", "limit cannot run in update mode", "", "GlobalLimit", "TakeOrderedAndProject"),
    _rule(r"session window streaming agg", "a session window cannot run in update mode", "", "SessionWindow"),
    _rule(r"NON_TIME_WINDOW_NOT_SUPPORTED", "a window function (over) cannot run on a stream", "", "Window"),
    _rule(
        r"^Distinct aggregations are not supported",
        "a distinct aggregate cannot run on a stream",
        "F.size(F.collect_set('id')) for an exact count, F.approx_count_distinct('id') for one with little state",
    ),
    _rule(
        _TWO_AGGREGATES,
        "an operation with state after another one cannot run in update mode",
        "one aggregate by all keys; or write the first result to a topic, and read that in a second pipeline",
    ),
    _rule(r"^Sampling is not supported", "sample cannot run on a stream", "", "Sample"),
    _rule(
        r"^dropDuplicatesWithinWatermark .* without watermark",
        "dropDuplicatesWithinWatermark needs a watermark",
        '.withWatermark("time", "10 minutes") before it',
    ),
    _rule(r"^Intersect of streaming", "intersect of two streams cannot run", _BOTH_SIDES),
    _rule(r"^Except on a streaming", "except of two streams cannot run", _BOTH_SIDES),
    _rule(
        r"Outer joins? with .*\bstatic\b",
        "a join cannot keep the rows of a static table that match nothing in the stream",
        "keep the stream's rows: events.join(F.broadcast(table), 'key', 'left')",
    ),
    _rule(
        r"Outer join between two streaming .* only in Append",
        "an outer join of two streams cannot run in update mode",
        "",
        "StreamingSymmetricHashJoin",
    ),
    _rule(
        r"Required attribute 'value' not found",
        "the rows have no column 'value' for Kafka to write",
        "make one: .selectExpr('to_json(struct(*)) as value')",
    ),
    _rule(
        r"topic option required|'topic' attribute is present",
        "the writer has no topic",
        '.option("topic", "results") on it, or a column \'topic\'',
    ),
)


def check(query: Query) -> Iterator[Finding]:
    """What Spark's analyser says, other than about real time."""
    lines = {finding.where for finding in operators_refused(query)}
    words = {family_of(node.name).words for node in refused_operators(query)}
    for refusal in query.refusals:
        if refusal.condition.startswith(_OTHERS) or is_option(refusal):
            continue
        rule = _rule_of(refusal, query)
        if rule is not None and any(FAMILIES[operator].words in words for operator in rule.operators):
            continue  # reported there
        if refusal.line and where(refusal) in lines:
            continue  # reported there, with what works instead
        sentence = _CODES.sub("", refusal.message.strip().splitlines()[0].partition(";")[0])
        if rule is not None:
            yield error(CODE, rule.title, why=f"Spark: {sentence}", fix=rule.instead, where=where(refusal))
            continue
        yield error(
            CODE,
            f"Spark refuses the query: {sentence}",
            why=f"its rule {refusal.condition}" if refusal.condition else "its analyser does not accept it",
            fix="rewrite that operation, or do it where the results are read",
            where=where(refusal),
        )


def _rule_of(refusal: Refusal, query: Query) -> Rule | None:
    found = next((rule for rule in _RULES if rule.sentence.search(refusal.message)), None)
    if found is not None and query.pivots and found.sentence.pattern == _TWO_AGGREGATES:
        return _rule(
            _TWO_AGGREGATES, "pivot cannot run on a stream", PIVOT_INSTEAD
        )  # Spark plans a pivot as two aggregates
    return found
