"""The course of a measurement, with a load and a probe that only take notes."""

import itertools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Self

import pytest

from tailrace.errors import MeasurementFailed
from tailrace.measure import measurement as module
from tailrace.measure.measurement import Moment, NoEngine, Plan, measure
from tailrace.measure.schedule import NS_PER_S, Clock, ConstantRate
from tailrace.measure.traffic.load import Flow, LoadReport
from tailrace.measure.traffic.probe import Arrivals, ByFields, ByLineage, OnSnapshot, Snapshot
from tailrace.measure.traffic.records import Events
from tailrace.report.result import Usage

from .fakes import arrivals_of, load_report

RATE = 1000.0


class Scene:
    """What load, probe and resources were told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.start_in_s = 0.0
        self.silent = 3
        self.window: tuple[int, int] = (0, 0)
        self.wanted: dict[str, Any] = {}
        self.processes: Mapping[str, Callable[[], int]] = {}
        self.limit_s = 0.0
        self.plans: list[ConstantRate] = []


class FakeProbe:
    """Sees its first record after a few looks."""

    scene: Scene
    pid = 11

    def __init__(self, _client: Any, topic: str, *, clock: Clock, known_by: object) -> None:
        self.scene.notes.append(f"probe on {topic}")

    def watch(self, until: Callable[[Snapshot], bool], on_snapshot: OnSnapshot) -> None:
        while True:
            self.scene.silent -= 1
            snapshot = Snapshot(max(0, -self.scene.silent), 0, None, None, None, ready=True)
            on_snapshot(snapshot)
            if until(snapshot):
                return

    def arrivals(self, first: int, end: int, **how: Any) -> Arrivals:
        how.pop("on_snapshot")(Snapshot(5, 0, None, None, None, ready=True))
        self.scene.wanted = {"first": first, "end": end, **how}
        return arrivals_of(range(first, end))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scene.notes.append("probe closed")


class FakeLoad:
    """A plan that sends nothing."""

    scene: Scene
    pid = 22

    def __init__(self, _client: Any, topic: str, flow: Flow, *, clock: Clock, limit_s: float) -> None:
        self.scene.notes.append(f"load into {topic}")
        self.scene.limit_s = limit_s
        self.plan = ConstantRate(clock.now_ns() + round(self.scene.start_in_s * NS_PER_S), flow.rate_per_s)
        self.scene.plans.append(self.plan)
        self.first_number = flow.first_number

    def number_until(self, end_ns: int) -> int:
        return self.first_number + self.plan.count_until(end_ns)

    def measure(self, first_ns: int, end_ns: int) -> None:
        self.scene.window = (first_ns, end_ns)

    def report(self, _timeout_s: float) -> LoadReport:
        return load_report()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.scene.notes.append("load closed")


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    recorded = Scene()

    class FakeResources:
        """Notes whose processes it would have looked at."""

        def __init__(self, roots: Mapping[str, Callable[[], int]]) -> None:
            recorded.processes = roots

        def begin(self) -> None:
            recorded.notes.append("resources begin")

        def end(self) -> dict[str, dict[str, float]]:
            recorded.notes.append("resources end")
            return {"load": Usage(0.5)}

    for name, fake in (("Probe", FakeProbe), ("Load", FakeLoad)):
        monkeypatch.setattr(fake, "scene", recorded, raising=False)
        monkeypatch.setattr(module, name, fake)
    monkeypatch.setattr(module, "Resources", FakeResources)
    # A millisecond goes by at each look at the clock, so that nothing depends on how busy the machine is.
    ticks = itertools.count(1_000_000_000, 1_000_000)
    seconds = SimpleNamespace(
        time_ns=lambda: 1_763_200_000_000_000_000, monotonic_ns=lambda: next(ticks), monotonic=lambda: next(ticks) / 1e9
    )
    monkeypatch.setattr(module, "time", seconds)
    return recorded


def plan(*, known_by: ByFields | ByLineage | None = None) -> Plan:
    return Plan(Flow(Events(), RATE), 0.05, 0.03, known_by or ByFields("id", "sent_ns"), drain_s=9.0)


def run(show: Callable[[Moment], None] = lambda _: None, engine: Any = None, **more: Any) -> module.Measurement:
    known_by = more.pop("known_by", None)
    (seen,) = measure([plan(known_by=known_by)], {}, ("in", "out"), engine or NoEngine(), show, **more)
    return seen


def test_the_probe_starts_before_the_load_and_both_are_closed(scene: Scene) -> None:
    run()
    assert scene.notes == [
        "probe on out",
        "load into in",
        "resources begin",
        "resources end",
        "load closed",
        "probe closed",
    ]


def test_the_warm_up_starts_at_the_first_result(scene: Scene) -> None:
    seen = run()
    assert (seen.first_ns, seen.end_ns) == scene.window
    assert seen.end_ns - seen.first_ns == round(0.05 * NS_PER_S)
    assert seen.first_ns - seen.began_ns >= round(0.03 * NS_PER_S)
    (due,) = scene.plans
    assert (seen.first, seen.end) == (due.count_until(seen.first_ns), due.count_until(seen.end_ns))
    assert seen.end - seen.first == pytest.approx(50, abs=1)
    assert seen.first_output_s >= 0
    assert seen.resources == {"load": Usage(0.5)}


def test_a_result_of_the_burst_does_not_start_the_window_early(scene: Scene) -> None:
    scene.start_in_s = 0.2
    seen = run()
    assert seen.first_ns == scene.plans[0].start_ns + round(0.03 * NS_PER_S)


def test_all_phases_are_shown_in_their_order(scene: Scene) -> None:
    phases: list[str] = []
    moments: list[Moment] = []

    def show(moment: Moment) -> None:
        moments.append(moment)
        if not phases or phases[-1] != moment.phase:
            phases.append(moment.phase)

    run(show)
    assert phases == ["start", "warm-up", "measure", "drain"]
    assert all(0 <= moment.elapsed_s <= moment.total_s for moment in moments if moment.phase in ("warm-up", "measure"))


@pytest.mark.parametrize(("more", "settle_s"), [({}, None), ({"merges": True}, 3.0), ({"known_by": ByLineage()}, 3.0)])
def test_the_drain_waits_for_every_expected_record(scene: Scene, more: dict[str, Any], settle_s: float | None) -> None:
    seen = run(**more)
    assert scene.wanted == {"first": seen.first, "end": seen.end, "timeout_s": 9.0, "settle_s": settle_s}


def test_load_and_probe_are_measured_with_the_given_processes(scene: Scene) -> None:
    run(processes={"engine": lambda: 1, "broker": lambda: 2})
    roots = {name: root() for name, root in scene.processes.items()}
    assert roots == {"engine": 1, "broker": 2, "load": 22, "probe": 11}


def test_the_load_outlasts_a_slow_start(scene: Scene) -> None:
    run()
    assert scene.limit_s == pytest.approx(module.FIRST_OUTPUT_TIMEOUT_S + 0.08)


@pytest.mark.parametrize("looks", [1, 6])
def test_an_engine_that_ends_ends_the_measurement(scene: Scene, looks: int) -> None:
    class Ending:
        """Ends after some looks: while it starts, or later."""

        left = looks

        def require_running(self) -> None:
            self.left -= 1
            if self.left == 0:
                raise MeasurementFailed("it ended by itself")

    with pytest.raises(MeasurementFailed, match="it ended by itself"):
        run(engine=Ending())
    assert scene.notes[-2:] == ["load closed", "probe closed"]


def test_an_engine_without_results_times_out(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.silent = 10**9
    monkeypatch.setattr(module, "FIRST_OUTPUT_TIMEOUT_S", 0.02)
    with pytest.raises(MeasurementFailed, match="no result came out within 0 s"):
        run()


def test_each_further_plan_has_its_own_load_with_later_numbers(scene: Scene) -> None:
    seen = measure([plan(), plan(), plan()], {}, ("in", "out"), NoEngine(), lambda _: None)
    assert scene.notes.count("probe on out") == 1
    assert scene.notes.count("load into in") == scene.notes.count("load closed") == 3
    assert scene.notes[-2:] == ["load closed", "probe closed"]
    for before, after in itertools.pairwise(seen):
        assert before.end_ns <= after.first_ns
        assert before.end < after.first, "what warms up after a change is counted too"
    assert (scene.wanted["first"], scene.wanted["end"]) == (seen[0].first, seen[-1].end)
    assert len({id(each.arrivals) for each in seen}) == 1
    assert len({each.first_output_s for each in seen}) == 1
