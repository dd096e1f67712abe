"""The demo's lanes with a measurement that is made up. The demo itself: tests/e2e/test_demo.py."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tailrace.demo import run as module
from tailrace.demo.fraud import pipeline
from tailrace.demo.run import floor_lane, payments_plan, pipeline_lane
from tailrace.errors import MeasurementFailed, QueryFailed
from tailrace.measure.measurement import Measurement, Moment, NoEngine, Plan
from tailrace.measure.traffic.probe import ByFields
from tailrace.measure.traffic.records import Payments
from tailrace.pipeline import Mode
from tailrace.prepare.options import RunOptions

from ..measure.fakes import RECORDS, arrivals_of, load_report, measurement

PLAN = payments_plan(2000.0, 30.0, 25.0)


class Scene:
    """What the lanes asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: Measurement = measurement()
        self.topics: list[str] = []
        self.measured: tuple[str, str] = ("", "")
        self.engine: Any = None
        self.started: Any = None
        self.stopped = False
        monkeypatch.setattr(module, "create_topic", lambda _client, name, _partitions: self.topics.append(name))
        monkeypatch.setattr(module, "measure", self._measure)
        monkeypatch.setattr(module, "start_query", self._start)

    def _measure(
        self, _plans: list[Plan], _client: Any, topics: tuple[str, str], engine: Any, _show: Any
    ) -> list[Measurement]:
        self.measured, self.engine = topics, engine
        engine.require_running()
        return [self.seen]

    @contextmanager
    def _start(self, given: Any, _options: RunOptions) -> Iterator[Any]:
        self.started = given
        try:
            yield FakeQuery()
        finally:
            self.stopped = True


class FakeQuery:
    """A query that may have failed."""

    is_active = True

    def raise_if_failed(self) -> None:
        raise QueryFailed("the query failed")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_the_plan_sends_payments_identified_by_fields() -> None:
    assert (PLAN.flow.records, PLAN.flow.rate_per_s, PLAN.seconds, PLAN.warmup_s) == (Payments(), 2000.0, 30.0, 25.0)
    assert PLAN.known_by == ByFields("payment_id", "sent_ns")
    assert PLAN.flow.burst > 0


def test_the_floor_is_one_topic_without_an_engine(scene: Scene) -> None:
    result = floor_lane(PLAN, {}, 2, lambda _: None)
    assert scene.measured == ("floor", "floor")
    assert isinstance(scene.engine, NoEngine)
    assert (result.samples, result.lost, result.duplicated, result.p50_ms) == (RECORDS, 0, 0, 1.0)


def test_a_pipelines_lane_has_its_own_topics(scene: Scene) -> None:
    shown: list[Moment] = []
    pipeline_lane(PLAN, {}, ("realtime", 2), pipeline, RunOptions(Mode.REALTIME), shown.append)
    assert scene.topics == ["payments-realtime", "decisions-realtime"] == list(scene.measured)
    assert scene.started.name == "fraud-realtime"
    assert scene.started.sources[0].topics == ("payments-realtime",)
    assert scene.started.sink.topic == "decisions-realtime"
    assert shown[0].phase == "start", "the screen has something to show while Spark starts"
    assert scene.stopped


def test_a_failed_query_ends_the_lane(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeQuery, "is_active", False)
    with pytest.raises(QueryFailed):
        pipeline_lane(PLAN, {}, ("realtime", 2), pipeline, RunOptions(Mode.REALTIME), lambda _: None)
    assert scene.stopped


def test_lost_and_repeated_records_are_counted_in_the_window(scene: Scene) -> None:
    scene.seen = measurement(arrivals_of([-1, *range(2, RECORDS), 5, 5, 6]))
    result = floor_lane(PLAN, {}, 2, lambda _: None)
    assert (result.samples, result.lost, result.duplicated) == (RECORDS - 2, 2, 3)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"failed": 3}, "3 of 10000 records could not be sent"),
        ({"late_ms_p99": 1500.0}, "the load generator fell behind its plan by 1500 ms"),
    ],
)
def test_a_failed_or_late_load_is_an_error(scene: Scene, changed: dict[str, Any], what: str) -> None:
    scene.seen = measurement(load=load_report(**changed))
    with pytest.raises(MeasurementFailed) as failed:
        floor_lane(PLAN, {}, 2, lambda _: None)
    assert failed.value.what == what
    assert failed.value.fix == "try a lower --rate"
