"""The fingerprint of a pipeline: what changes it and what does not. Plans of Spark: tests/e2e/test_delivery_plan.py."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark import cloudpickle

from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.plan.delivery import FunctionPlan, PickledFunction
from tailrace.prepare.fingerprint import fingerprint

SOURCE = KafkaSource("payments", "id string, amount double", json_options={"locale": "de"})
PIPELINE = Pipeline("fraud", SOURCE, lambda frame: frame, KafkaSink("decisions", key="id"))
SETTINGS = {"spark.sql.session.timeZone": "UTC"}


def limit(most: object) -> Callable[[Any], Any]:
    return lambda amount: amount < most


def plan_of(*functions: Callable[[Any], Any], text: str = "Filter", unstable: str = "") -> FunctionPlan:
    pickled = tuple(PickledFunction("score", cloudpickle.dumps((each, None))) for each in functions)
    return FunctionPlan((), text, unstable, pickled)


def hashed(pipeline: Pipeline = PIPELINE, plan: FunctionPlan | None = None, **more: Any) -> str | None:
    return fingerprint(pipeline, plan or plan_of(limit(1)), "4.3.0", {**SETTINGS, **more}).value


def with_source(**changed: Any) -> Pipeline:
    return replace(PIPELINE, source=replace(SOURCE, **changed))


def with_sink(**changed: Any) -> Pipeline:
    return replace(PIPELINE, sink=replace(PIPELINE.sink, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        with_source(starting="earliest"),
        with_source(options={"kafka.sasl.jaas.config": "secret", "maxOffsetsPerTrigger": "5"}),
        with_sink(options={"kafka.linger.ms": "5"}),
        replace(PIPELINE, transform=lambda frame: frame),
    ],
)
def test_what_decides_nothing_does_not_change_it(changed: Pipeline) -> None:
    assert hashed(changed) == hashed() is not None


@pytest.mark.parametrize(
    "changed",
    [
        with_source(topics="orders"),
        with_source(schema="id string, amount float"),
        with_source(json_options={}),
        with_sink(topic="others"),
        with_sink(topic_column="target"),
        with_sink(key=None),
        with_sink(value="id"),
        with_sink(options={"kafka.max.request.size": "100"}),
        replace(PIPELINE, malformed="drop"),
        replace(PIPELINE, dead_letters="letters"),
        replace(PIPELINE, python_errors="dead-letter"),
        replace(PIPELINE, source=(SOURCE, replace(SOURCE, topics=("orders",)))),
    ],
)
def test_what_decides_something_changes_it(changed: Pipeline) -> None:
    assert hashed(changed) != hashed()


def test_plan_functions_and_settings_change_it() -> None:
    known = hashed()
    assert hashed(plan=plan_of(limit(1))) == known
    others = {
        hashed(plan=plan_of(limit(2))),
        hashed(plan=plan_of(limit(1), limit(1))),
        hashed(plan=plan_of(limit(1), text="Project")),
        hashed(**{"spark.sql.session.timeZone": "CET"}),
        fingerprint(PIPELINE, plan_of(limit(1)), "4.3.1", SETTINGS).value,
    }
    assert len(others) == 5
    assert known not in others


class Refusing:
    def __reduce__(self) -> Any:
        return eval, ("1 / 0",)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (plan_of(unstable="the JVM function f"), "the JVM function f cannot be compared with that of an earlier run"),
        (plan_of(limit(iter([1]))), "a list_iterator in <lambda> cannot be"),
        (plan_of(limit(Refusing())), r"the data of score \(ZeroDivisionError\) cannot be"),
    ],
)
def test_what_cannot_be_compared_is_named(plan: FunctionPlan, why: str) -> None:
    computed = fingerprint(PIPELINE, plan, "4.3.0", SETTINGS)
    assert computed.value is None
    assert __import__("re").match(why, computed.why)
