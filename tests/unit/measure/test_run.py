"""One run of one lane, where topics, measurement and audit are made up."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
from hdrh.histogram import HdrHistogram

from tailrace.errors import BrokerUnreachable, MeasurementFailed
from tailrace.measure import run as module
from tailrace.measure.audit import Audit
from tailrace.measure.measurement import Measurement, Moment, NoEngine, Plan
from tailrace.measure.process import KilledOnce, LaneProcess
from tailrace.measure.run import (
    LATER_WARMUP_S,
    Bench,
    KillMoment,
    by_stamps,
    failed_run,
    figures,
    open_bench,
    run_cells,
)
from tailrace.measure.schedule import NS_PER_S
from tailrace.measure.traffic.probe import Arrivals, origin_number
from tailrace.measure.works import Work
from tailrace.report.result import (
    Delay,
    Kill,
    Reason,
    Run,
    Span,
    Usage,
)

from .fakes import RECORDS, START, FakeLane, arrivals_of, cell_of, load_report, measurement

WAITING = (sys.executable, "-c", "import signal; signal.pause()")
ENGINE = FakeLane(argv=WAITING)


class Scene:
    """What a run made and asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = Bench("b:1", {"bootstrap.servers": "b:1"}, 3, folder, broker_pid=77)
        self.topics: list[str] = []
        self.deleted: set[str] = set()
        self.seen: Measurement | Exception = measurement()
        self.result = Audit(RECORDS, 0, 0, {"intended to broker": Span(p50=1.0)})
        self.engine: Any = None
        self.asked: dict[str, Any] = {}
        self.plans: list[Plan] = []
        self.audited: tuple[str, str] | None = None
        self.in_folder: list[str] = []
        monkeypatch.setattr(module, "create_topic", self._create_topic)
        monkeypatch.setattr(module, "delete_topics", self._delete_topics)
        monkeypatch.setattr(module, "measure", self._measure)
        monkeypatch.setattr(module, "audit", self._audit)

    def _create_topic(self, _client: Any, name: str, partitions: int, settings: Mapping[str, str]) -> bool:
        assert (partitions, settings) == (3, {"message.timestamp.type": "LogAppendTime"})
        self.topics.append(name)
        return True

    def _delete_topics(self, _client: Any, names: Iterable[str]) -> None:
        self.deleted = set(names)
        raise BrokerUnreachable("no broker responds at b:1")  # which is not what the run is about

    def _measure(self, plans: Any, _client: Any, topics: tuple[str, str], engine: Any, _show: Any, **more: Any) -> Any:
        self.engine, self.asked, self.plans = engine, {"topics": topics, **more}, plans
        self.in_folder = [path.name for path in self.bench.scratch.rglob("*")]
        engine.require_running()
        if isinstance(self.seen, Exception):
            raise self.seen
        return [self.seen] * len(plans)

    def _audit(self, _work: Work, _client: Any, source: str, sink: str, windows: list[Measurement]) -> list[Audit]:
        self.audited = (source, sink)
        return [self.result] * len(windows)

    def run(self, cell: Any) -> Run:
        (line,) = run_cells(self.bench, [cell], lambda _: None)
        return line


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "scratch", monkeypatch)


def test_without_an_engine_there_is_one_topic(scene: Scene) -> None:
    line = scene.run(cell_of(FakeLane("floor")))
    (topic,) = scene.topics
    assert topic.startswith("bench-floor-in-")
    assert scene.asked["topics"] == (topic, topic)
    assert isinstance(scene.engine, NoEngine)
    assert {name: pid() for name, pid in scene.asked["processes"].items()} == {"broker": 77}
    assert line.valid is True


def test_an_engine_runs_between_fresh_topics_in_a_temporary_folder(scene: Scene) -> None:
    scene.run(cell_of(ENGINE))
    source, sink = scene.topics
    assert (source.split("-")[:3], sink.split("-")[:3]) == (["bench", "realtime", "in"], ["bench", "realtime", "out"])
    assert scene.asked["topics"] == scene.audited == (source, sink)
    assert scene.deleted == {source, sink}, "gone afterwards, too"
    assert isinstance(scene.engine, LaneProcess)
    assert scene.asked["processes"]["engine"]() == scene.engine.pid
    assert scene.asked["merges"] is False
    assert "lane-1.log" in scene.in_folder
    assert list(scene.bench.scratch.iterdir()) == []
    assert not psutil.pid_exists(scene.engine.pid)
    scene.run(cell_of(ENGINE))
    assert len(set(scene.topics)) == 4, "fresh for every run"


def test_only_the_first_cell_of_an_engine_has_the_long_warm_up(scene: Scene) -> None:
    warm = replace(cell_of(ENGINE).plan, warmup_s=60.0)
    flow = replace(warm.flow, burst=20_000)
    cells = [
        replace(cell_of(ENGINE, key=f"realtime {rate:g}"), plan=replace(warm, flow=replace(flow, rate_per_s=rate)))
        for rate in (200.0, 2000.0)
    ]
    lines = run_cells(scene.bench, cells, lambda _: None)
    assert [(plan.warmup_s, plan.flow.burst, plan.flow.rate_per_s) for plan in scene.plans] == [
        (60.0, 20_000, 200.0), (LATER_WARMUP_S, 0, 2000.0),
    ]  # fmt: skip
    assert [(line.key, line.rate_per_s) for line in lines] == [("realtime 200", 200.0), ("realtime 2000", 2000.0)]
    assert len(scene.topics) == 2, "one engine between two topics"


def test_a_failed_measurement_leaves_no_process_and_no_folder(scene: Scene) -> None:
    scene.seen = MeasurementFailed("nothing came out")
    with pytest.raises(MeasurementFailed, match="nothing came out"):
        scene.run(cell_of(ENGINE))
    assert list(scene.bench.scratch.iterdir()) == []
    assert not psutil.pid_exists(scene.engine.pid)


def test_a_run_has_every_field_of_the_result(scene: Scene) -> None:
    line = scene.run(cell_of(ENGINE, key="realtime stateless 1000"))
    assert line.to_json().keys() == failed_run(cell_of(ENGINE), MeasurementFailed("x", detail="y")).to_json().keys() - {
        "detail"
    }
    assert (line.key, line.lane, line.work, line.rate_per_s) == (
        "realtime stateless 1000", "realtime", "stateless", 1000.0,
    )  # fmt: skip
    assert line.result.samples == RECORDS
    assert line.result.p50_ms == line.mean_ms == 1.0
    assert line.spans_ms == scene.result.spans_ms
    assert (line.output_checked, line.output_wrong, line.problems) == (RECORDS, 0, ())


def test_lost_and_repeated_records_void_a_run(scene: Scene) -> None:
    scene.seen = measurement(arrivals_of([-1, -1, *range(1, RECORDS), 5, 5]))
    line = scene.run(cell_of(ENGINE))
    assert (line.result.samples, line.result.lost, line.result.duplicated) == (RECORDS - 1, 1, 2)
    assert line.valid is False
    assert len(line.problems) == 2


def test_merged_records_are_counted(scene: Scene) -> None:
    scene.seen = measurement(arrivals_of(range(0, RECORDS, 4)))
    line = scene.run(cell_of(FakeLane("microbatch", merges=True, argv=WAITING), work=Work.AGGREGATE))
    assert scene.asked["merges"] is True
    assert (line.result.samples, line.result.lost, line.merged) == (RECORDS // 4, 0, RECORDS * 3 // 4)
    assert line.valid is True


def test_merging_needs_a_merging_work_and_engine() -> None:
    merging = FakeLane(merges=True)
    assert cell_of(merging, work=Work.WINDOW).merges
    assert not cell_of(merging, work=Work.STATELESS).merges
    assert not cell_of(FakeLane(), work=Work.WINDOW).merges


def test_too_few_boundaries_void_a_run(scene: Scene) -> None:
    line = scene.run(cell_of(ENGINE, needs_boundaries=3))
    assert line.boundaries == ()
    assert line.problems == ("0 batch boundaries in the window, 3 are needed to show what they cost",)
    assert line.reasons == (Reason.TOO_FEW_BOUNDARIES,)


def test_a_killed_engine_is_restarted_and_its_recovery_reported(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KillMoment, "__call__", lambda _: 0.0)
    killed_ns = START + 5 * NS_PER_S
    monkeypatch.setattr("tailrace.measure.process.time.time_ns", lambda: killed_ns)
    latency = np.ones(RECORDS)
    latency[5_000:7_500] = np.linspace(2_500, 1, 2_500)
    scene.seen = measurement(arrivals_of([*range(RECORDS), *range(4_000, 5_000)], [*latency, *[3_500.0] * 1_000]))
    line = scene.run(cell_of(ENGINE, kill_after_s=1.0))
    assert isinstance(scene.engine, KilledOnce)
    assert {"lane-1.log"} <= set(scene.in_folder)
    assert line.kill == Kill(at_s=5.0, silent_s=pytest.approx(2.5, abs=0.01), replayed=1_000)
    assert line.valid is True, line.problems
    assert scene.run(cell_of(ENGINE)).kill is None


def test_an_engine_is_killed_some_time_after_its_first_result() -> None:
    shown: list[Moment] = []
    moment = KillMoment(5.0, shown.append)
    moment.show(Moment("start", 3.0, 0.0, None))
    assert moment() == float("inf")
    moment.show(Moment("warm-up", 0.0, 1.0, None))
    at = moment()
    assert 0 < at < float("inf")
    moment.show(Moment("measure", 0.0, 1.0, None))
    assert moment() == at, "fixed once"
    assert [each.phase for each in shown] == ["start", "warm-up", "measure"]
    never = KillMoment(None, shown.append)
    never.show(Moment("measure", 0.0, 1.0, None))
    assert never() == float("inf")


def test_results_are_renumbered_by_the_stamps_of_the_load() -> None:
    places = [origin_number(1, 5), origin_number(0, 2), -1, origin_number(1, 5)]
    numbers = np.array(places, dtype=np.int64)
    arrivals = Arrivals(numbers, np.zeros(4, dtype=np.int64), np.arange(100, 104), 9)
    renumbered = by_stamps(
        arrivals, {origin_number(1, 5): (7, 50), origin_number(0, 2): (8, 60), origin_number(0, 3): (9, 70)}
    )
    assert renumbered.numbers.tolist() == [7, 8, 7]
    assert renumbered.sent_ns.tolist() == [50, 60, 50]
    assert renumbered.received_ns.tolist() == [100, 101, 103]
    assert renumbered.ready_ns == 9
    assert len(by_stamps(arrivals, {})) == 0


def test_figures_of_a_run() -> None:
    resources = {"engine": Usage(0.3, 800.0)}
    seen = measurement(load=load_report(late_ms_p99=1.23456), resources=resources, first_output_s=9.4)
    run = figures(seen, seen.arrivals.firsts(), 0.25)
    assert run.publish_delay_ms == Delay(0.05, 1.235, 3.0)
    assert run.achieved_rate_per_s == 1000.0
    assert run.resources == resources
    assert (run.first_output_s, run.lag_per_s) == (9.4, 0.25)
    assert run.timeline is not None
    assert len(run.timeline.count) == 20
    assert sum(run.timeline.count) == RECORDS
    assert dict(run.percentiles)[99.9] == 1.0
    assert HdrHistogram.decode(run.histogram).get_total_count() == RECORDS


@pytest.mark.parametrize(("took_s", "rate"), [(9.0, 1.0), (20.0, 0.5)])
def test_a_low_rate_is_reported_exactly(took_s: float, rate: float) -> None:
    """Ten records in ten seconds are nine seconds apart, from the first to the last."""
    seen = measurement(arrivals_of(range(10)), end=10, load=load_report(measured=10, took_s=took_s))
    assert figures(seen, seen.arrivals, 0.0).achieved_rate_per_s == rate


def test_figures_of_a_run_without_results() -> None:
    seen = measurement(arrivals_of([]))
    run = figures(seen, seen.arrivals, 0.0)
    assert (run.mean_ms, run.percentiles) == (None, ())
    assert run.timeline is not None
    assert set(run.timeline.p50_ms) == {None}


@pytest.mark.parametrize(("memory", "log"), [(Path("memory"), "in memory"), (None, "on disk")])
def test_own_broker_is_stopped(memory: Path | None, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    homes: list[Path | None] = []

    @contextmanager
    def temporary_broker(_announce: Any, memory: Path | None) -> Iterator[Any]:
        homes.append(memory)
        yield SimpleNamespace(bootstrap_servers="127.0.0.1:5", scratch=tmp_path, pid=42)
        notes.append("gone")

    monkeypatch.setattr(module, "temporary_broker", temporary_broker)
    monkeypatch.setattr(module, "memory_dir", lambda: nullcontext(memory))
    said: list[str] = []
    with open_bench(None, 4, said.append) as bench:
        assert (bench.bootstrap_servers, bench.partitions, bench.scratch, bench.broker_pid) == (
            "127.0.0.1:5", 4, tmp_path, 42,
        )  # fmt: skip
        assert bench.client["bootstrap.servers"] == "127.0.0.1:5"
        assert (homes, bench.broker_log) == ([memory], log)
        assert notes == []
    assert notes == ["gone"]
    assert said == ["Starting a temporary Kafka broker ..."]


def test_users_broker_is_asked_first_and_the_folder_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "list_topics", asked.append)
    with open_bench("kafka:9092", 2, lambda _: None) as bench:
        assert bench.broker_pid is None, "somebody else's process"
        assert bench.folder("lane").is_dir()
        assert bench.folder("lane") != bench.folder("lane")
    assert not bench.scratch.exists()
    assert asked[0]["bootstrap.servers"] == "kafka:9092"


def test_users_unreachable_broker_is_reported_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_client: Any) -> None:
        raise BrokerUnreachable("no broker responds at kafka:9092")

    monkeypatch.setattr(module, "list_topics", refuse)
    with pytest.raises(BrokerUnreachable), open_bench("kafka:9092", 2, lambda _: None):
        pytest.fail("nothing may begin")
