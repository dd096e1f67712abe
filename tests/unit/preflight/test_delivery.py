"""What a pipeline guarantees after a crash, decided from plain data."""

from dataclasses import replace
from typing import Any

import pytest

from tailrace.plan.delivery import DeliveryPlan, FunctionPlan, Obstacle
from tailrace.preflight.delivery import OWN_WRITER, PipelineFacts, delivery_plan, preventions

from .queries import node

PLAN = node("Project", node("RealTimeStreamScan"))
STATELESS = PipelineFacts(FunctionPlan((), "text", "", ()), PLAN)


def planned(asked: str | None = None, fingerprint: str | None = "f", **changed: Any) -> DeliveryPlan:
    return delivery_plan(list(preventions(replace(STATELESS, **changed))), asked, fingerprint, "a model")


def function(*obstacles: Obstacle) -> FunctionPlan:
    return replace(STATELESS.function, obstacles=obstacles)


def test_a_stateless_pipeline_is_effectively_once_without_being_asked() -> None:
    for asked in (None, "effectively-once"):
        assert planned(asked) == DeliveryPlan(keeps_progress=True, effectively_once=True, fingerprint="f")
    assert planned().in_words == "effectively-once"


def test_at_least_once_keeps_progress_and_a_fingerprint_for_a_later_start() -> None:
    plan = planned("at-least-once")
    assert (plan.keeps_progress, plan.effectively_once, plan.fingerprint) == (True, False, "f")
    assert plan.in_words == "at-least-once: as asked"
    assert not plan.surprises


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Aggregate", "an aggregate"),
        ("Deduplicate", "dropDuplicates"),
        ("StreamingSymmetricHashJoin", "a join of two streams"),
        ("MapInPandas", "mapInPandas"),
        ("RepartitionByExpression", "repartition"),
        ("Window", "a window function"),
        ("GlobalLimit", "limit"),
        ("TransformWithStateInPySpark", "transformWithState"),
        ("SomethingNew", "the operation SomethingNew"),
    ],
)
def test_an_operator_prevents_both_and_is_named_with_its_line(name: str, words: str) -> None:
    plan = planned(function=function(Obstacle("operator", name, call="groupBy", line="fraud.py:12")))
    assert (plan.keeps_progress, plan.effectively_once, plan.surprises) == (False, False, False)
    assert plan.in_words.startswith(f"at-least-once: {words}")
    assert plan.in_words.endswith("(fraud.py:12 (groupBy))")


@pytest.mark.parametrize(
    ("obstacle", "words"),
    [
        (Obstacle("varying", "filter", "rand"), "rand gives another value each time, and decides whether a row"),
        (Obstacle("varying", "topic", "uuid"), "to which topic"),
        (Obstacle("varying", "generator", "score"), "how many rows"),
        (Obstacle("varying", "join", "current_timestamp"), "which rows match"),
        (Obstacle("varying", "table", "sample"), "a static table has"),
        (Obstacle("table_order", ""), "several rows of a static table"),
    ],
)
def test_what_varies_prevents_only_that_outputs_are_left_out(obstacle: Obstacle, words: str) -> None:
    plan = planned(function=function(obstacle))
    assert (plan.keeps_progress, plan.effectively_once, plan.surprises) == (True, False, True)
    assert words in plan.reason
    assert plan.fix


def test_a_non_deterministic_function_counts_only_if_its_failures_become_dead_letters() -> None:
    declared = function(Obstacle("varying_function", "score"))
    assert planned(function=declared).effectively_once
    plan = planned(function=declared, failures_become_letters=True)
    assert plan.reason.startswith("score is declared non-deterministic")


def test_a_stream_that_is_no_source_of_the_pipeline_has_no_coordinates() -> None:
    assert not planned(function=function(Obstacle("foreign_stream", "StreamingRelationV2"))).keeps_progress


@pytest.mark.parametrize(
    ("plan", "keeps"),
    [
        (node("Exchange", node("RealTimeStreamScan"), partitions=4), False),
        (node("BroadcastExchange", node("RealTimeStreamScan")), False),
        (
            node(
                "BroadcastHashJoin",
                node("RealTimeStreamScan"),
                node("BroadcastExchange", node("Exchange", node("Scan"), partitions=4)),
            ),
            True,
        ),
        (None, False),
    ],
)  # fmt: skip
def test_a_shuffle_of_the_stream_prevents_both_and_one_of_a_table_does_not(plan: Any, keeps: bool) -> None:
    assert planned(plan=plan).keeps_progress is keeps


@pytest.mark.parametrize(
    ("changed", "words", "keeps"),
    [
        ({"lineage": False}, "lineage=False", False),
        ({"uncontrolled": "Spark 5 is not known"}, "Spark 5", False),
        ({"has_own_sink": False}, "Spark's own sink", False),
        ({"unreadable": {"out": "kafka-acls ..."}}, "may not read the output topic out", True),
        ({"compacted": ("out",)}, "out is compacted", True),
    ],
)
def test_other_reasons(changed: dict[str, Any], words: str, keeps: bool) -> None:
    plan = planned(**changed)
    assert words in plan.reason
    assert (plan.keeps_progress, plan.effectively_once) == (keeps, False)


def test_what_prevents_both_is_named_first() -> None:
    plan = planned(compacted=("out",), function=function(Obstacle("operator", "Aggregate")))
    assert plan.reason.startswith("an aggregate")


def test_without_a_fingerprint_nothing_can_be_left_out() -> None:
    plan = planned(fingerprint=None)
    assert (plan.keeps_progress, plan.effectively_once, plan.reason) == (True, False, "a model")
    assert plan.surprises


def test_a_writer_guarantees_neither() -> None:
    plan = delivery_plan([OWN_WRITER], None)
    assert not plan.keeps_progress
    assert "DataStreamWriter" in plan.in_words
