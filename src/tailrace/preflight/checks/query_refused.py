"""Spark refuses the query on any stream, in micro-batch too.

Problem:
    ``orderBy``, ``limit``, ``pivot``, ``countDistinct`` or a window function (``over``) on a stream, an aggregate after
    another one, an outer join of two streams.

Do this instead:
    Each finding has a rewrite, such as ``F.size(F.collect_set("id"))`` for a distinct count and
    ``F.sum(F.when(F.col("kind") == "a", F.col("amount")))`` for each value of a pivot.
"""

from collections.abc import Iterator

from tailrace.conditions.analysis import OTHER_RULE, PIVOT, RULES, TWO_AGGREGATES
from tailrace.conditions.condition import Condition
from tailrace.conditions.operators import OPERATIONS, operation_of
from tailrace.conditions.text import sentence
from tailrace.plan.refusal import Refusal
from tailrace.preflight.checks.operator_refused import check as operators_refused
from tailrace.preflight.checks.operator_refused import refused_operators
from tailrace.preflight.checks.source_option_refused import is_option
from tailrace.preflight.finding import Finding, refused
from tailrace.preflight.query import Query, where

CODE = OTHER_RULE.code
_OTHER_CHECKS = ("STREAMING_REAL_TIME_MODE.", "TAILRACE_")


def check(query: Query) -> Iterator[Finding]:
    """Report what Spark's analyser refuses, except what only real time refuses."""
    lines = {finding.where for finding in operators_refused(query)}
    operations = {operation_of(node.name) for node in refused_operators(query)}
    for refusal in query.refusals:
        if refusal.condition.startswith(_OTHER_CHECKS) or is_option(refusal):
            continue
        rule = _rule_of(refusal, query)
        by_operator = any(OPERATIONS[operator] in operations for operator in rule.operators)
        by_line = refusal.line and where(refusal) in lines
        if by_operator or by_line:
            continue  # OPERATOR_REFUSED reports it.
        values = {"rule": f"it breaks Spark's rule {refusal.condition}"} if refusal.condition else {}
        values["sentence"] = sentence(refusal.message.strip().splitlines()[0])
        yield refused(query, rule, where=where(refusal), **values)


def _rule_of(refusal: Refusal, query: Query) -> Condition:
    rule = next((rule for rule in RULES if rule.search(refusal.message)), OTHER_RULE)
    # Spark plans a pivot as two aggregates.
    return PIVOT if rule is TWO_AGGREGATES and query.pivots else rule
