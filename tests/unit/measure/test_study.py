"""A study with a measurement that is made up: order, resumption, what is told. Real studies: tests/e2e."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from rich.console import Console

from tailrace.errors import LaneUnavailable, MeasurementFailed
from tailrace.measure import study as module
from tailrace.measure.latency import hdr_histogram
from tailrace.measure.run import Bench, CellPlan
from tailrace.measure.screen import Screen
from tailrace.measure.study import HISTOGRAM_FILE, RESULT_FILE, RUNS_FILE, Study, measuring_order, run_study
from tailrace.measure.works import Work
from tailrace.report.result import (
    Reason,
    Result,
    Run,
    SweepPoint,
    Unavailable,
)

from .fakes import FakeLane, cell_of, run_line

BENCH = Bench("b:1", {}, 2, Path("scratch"), broker_log="in memory")
FLOOR = cell_of(FakeLane("floor", "Kafka alone", is_baseline=True))
BATCH = cell_of(FakeLane("microbatch", "micro-batch", merges=True))
FAST = cell_of(FakeLane("realtime", "real time"))
CELLS = (FLOOR, BATCH, FAST)
P50 = {"floor": 0.3, "microbatch": 250.0, "realtime": 1.0}

Measures = Callable[[CellPlan], Run]


class Scene:
    """A study's folder and screen, and a note of every cell that was measured."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.measured: list[str] = []
        self.shown = io.StringIO()
        self.measures: Measures = lambda cell: run_line(cell, P50[cell.lane.name])
        self.lives: list[int] = []
        monkeypatch.setattr(module, "run_cells", self._run_cells)

    def _run_cells(self, _bench: Bench, cells: Sequence[CellPlan], _show: object) -> list[Run]:
        self.lives.append(len(cells))
        self.measured += [cell.key for cell in cells]
        return [self.measures(cell) for cell in cells]

    def run(self, study: Study) -> Result:
        with Screen(Console(file=self.shown, width=200)) as screen:
            return run_study(study, BENCH, screen, self.folder)

    def stop_before(self, key: str) -> None:
        """As if the whole benchmark was interrupted there."""
        measures = self.measures

        def stopped(cell: CellPlan) -> Run:
            if cell.key == key:
                raise KeyboardInterrupt
            return measures(cell)

        self.measures = stopped


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path / "out", monkeypatch)


def a_study(cells: Sequence[CellPlan] = CELLS, runs: int = 1, **more: Any) -> Study:
    return Study("bench", cells, runs, {"rate_per_s": 1000}, **more)


def test_every_second_run_is_in_reverse_order() -> None:
    order = [(run, cell.key) for run, (cell,) in measuring_order([[cell] for cell in CELLS], 3)]
    there = ["floor", "microbatch", "realtime"]
    assert [key for _, key in order] == [*there, *there[::-1], *there]
    assert [run for run, _ in order] == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def rates_of(cell: CellPlan, *rates: float) -> list[CellPlan]:
    plans = [replace(cell.plan, flow=replace(cell.plan.flow, rate_per_s=rate)) for rate in rates]
    return [replace(cell, plan=plan, key=f"{cell.key} {plan.flow.rate_per_s:g}") for plan in plans]


def test_cells_share_an_engine_process_if_the_study_says_so(scene: Scene) -> None:
    cells = [*rates_of(BATCH, 10, 20), *rates_of(FAST, 10, 20)]
    result = scene.run(a_study(cells, runs=2, shares_engines=True))
    assert scene.lives == [2, 2, 2, 2]
    there, back = scene.measured[:4], scene.measured[4:]
    assert there == ["microbatch 10", "microbatch 20", "realtime 10", "realtime 20"]
    assert back == ["realtime 10", "realtime 20", "microbatch 10", "microbatch 20"], "the lowest rate is still first"
    assert [run.order for run in result.runs] == list(range(1, 9))
    assert "runs 5 to 6 of 8" not in scene.shown.getvalue(), "that is for a terminal"
    scene.lives.clear()
    scene.run(a_study(cells))
    assert scene.lives == [1, 1, 1, 1]


def test_an_engine_that_ends_at_one_rate_gets_a_process_for_each(scene: Scene) -> None:
    def measures(cell: CellPlan) -> Run:
        if cell.plan.flow.rate_per_s == 20:
            raise MeasurementFailed("lane realtime ended by itself")
        return run_line(cell, 1.0)

    scene.measures = measures
    result = scene.run(a_study(rates_of(FAST, 10, 20), shares_engines=True))
    assert scene.lives == [2, 1, 1]
    assert [(run.key, run.valid) for run in result.runs] == [("realtime 10", True), ("realtime 20", False)]
    assert "each rate gets its own engine" in scene.shown.getvalue()


def test_a_study_measures_every_cell_and_saves_the_result(scene: Scene) -> None:
    result = scene.run(a_study(runs=2, profile="quick", notes=["a note"]))
    assert scene.measured == ["floor", "microbatch", "realtime", "realtime", "microbatch", "floor"]
    assert [(run.key, run.run, run.order) for run in result.runs][3] == ("realtime", 2, 4)
    assert Result.from_json(json.loads((scene.folder / RESULT_FILE).read_text())) == result
    assert (result.study, result.profile) == ("bench", "quick")
    assert result.notes == ("a note", "The broker was the benchmark's own and kept its log in memory.")
    assert (result.valid, result.verdict, result.unavailable) == (True, (), ())
    assert result.versions["engine of realtime"] == "1.0"
    assert "kafka broker" in result.versions
    assert "fingerprint" not in (scene.folder / RESULT_FILE).read_text()
    assert result.lanes["realtime"].p50_ms == 1.0


def test_the_floor_is_not_compared_with_the_reference(scene: Scene) -> None:
    result = scene.run(a_study())
    assert [(each.slow, each.fast, each.percentile) for each in result.ratios] == [
        ("microbatch", "realtime", percentile) for percentile in ("p50", "p95", "p99", "p99.9")
    ]
    assert {each.median for each in result.ratios} == {250.0}
    assert result.declined == ()


def test_each_work_may_have_its_own_reference(scene: Scene) -> None:
    python = [
        replace(cell_of(FakeLane(name, is_baseline=name == "floor")), work=Work.PYTHON)
        for name in ("floor", "microbatch")
    ]
    cells = [*(replace(cell, key=f"{cell.key} python") for cell in python), FLOOR, FAST]
    result = scene.run(a_study(cells, references=("realtime", "microbatch")))
    assert result.ratios == (), "references are not compared with each other, nor with the floor"
    slow = replace(cell_of(FakeLane("realtime")), work=Work.PYTHON, key="realtime python")
    result = scene.run(a_study([cells[1], slow], references=("microbatch",)))
    assert {(each.slow, each.fast) for each in result.ratios} == {("realtime python", "microbatch python")}


def test_no_ratio_if_only_one_lane_merges(scene: Scene) -> None:
    cells = [replace(cell, work=Work.AGGREGATE) for cell in (BATCH, FAST)]
    result = scene.run(a_study(cells))
    assert result.ratios == ()
    (sentence,) = result.declined
    assert sentence.startswith("micro-batch against real time, aggregate: one merges updates")


def test_no_ratio_with_a_void_run(scene: Scene) -> None:
    void: dict[str, Any] = {"valid": False, "problems": ["lied"]}
    scene.measures = lambda cell: run_line(cell, **(void if cell.key == "microbatch" else {}))
    result = scene.run(a_study())
    assert result.ratios == ()
    assert result.declined == ("micro-batch against real time, stateless: a run is void",)
    assert (result.valid, result.verdict) == (False, ("microbatch, run 1: lied",))
    assert "void: lied" in scene.shown.getvalue()


def test_ratios_compare_the_same_work_and_rate(scene: Scene) -> None:
    cells = [
        cell_of(lane, rate=rate, key=f"{lane.name} {rate:g}")
        for rate in (10.0, 20.0)
        for lane in (FakeLane("microbatch"), FakeLane("realtime"))
    ]
    pairs = {(each.slow, each.fast) for each in scene.run(a_study(cells)).ratios}
    assert pairs == {("microbatch 10", "realtime 10"), ("microbatch 20", "realtime 20")}


def test_a_failed_lane_is_void_and_the_others_continue(scene: Scene) -> None:
    def failing(cell: CellPlan) -> Run:
        if cell.key == "microbatch":
            raise MeasurementFailed("it ended by itself", why="no memory", detail="the last lines")
        return run_line(cell)

    scene.measures = failing
    result = scene.run(a_study())
    assert scene.measured == ["floor", "microbatch", "realtime"]
    failed = next(run for run in result.runs if run.key == "microbatch")
    assert failed.problems == ("it ended by itself: no memory",)
    assert (failed.valid, failed.detail, failed.result.p50_ms) == (False, "the last lines", None)
    assert result.valid is False
    assert result.lanes["realtime"].valid is True
    assert result.lanes["microbatch"].valid is False
    assert json.loads((scene.folder / RESULT_FILE).read_text())["valid"] is False


def test_a_failed_run_has_every_field() -> None:
    failed = module.failed_run(FAST, MeasurementFailed("it broke"))
    assert run_line(FAST).to_json().keys() - failed.to_json().keys() == set()
    assert (failed.problems, failed.reasons) == (("it broke",), (Reason.FAILED,))


def test_an_interrupted_study_resumes(scene: Scene) -> None:
    scene.stop_before("realtime")
    with pytest.raises(KeyboardInterrupt):
        scene.run(a_study(runs=2))
    assert scene.measured == ["floor", "microbatch", "realtime"]
    assert not (scene.folder / RESULT_FILE).exists()
    scene.measured.clear()
    scene.measures = lambda cell: run_line(cell, P50[cell.lane.name])
    result = scene.run(a_study(runs=2))
    assert scene.measured == ["realtime", "realtime", "microbatch", "floor"]
    assert [run.order for run in result.runs] == [1, 2, 3, 4, 5, 6]
    assert "2 of 6 runs are done" in scene.shown.getvalue()
    scene.measured.clear()
    scene.run(a_study(runs=2))
    assert len(scene.measured) == 6, "what is done is in the result, and the same command measures anew"


def test_an_unfinished_line_is_measured_again(scene: Scene) -> None:
    scene.stop_before("realtime")
    with pytest.raises(KeyboardInterrupt):
        scene.run(a_study())
    file = scene.folder / RUNS_FILE
    whole = file.read_text()
    file.write_text(whole[: whole.rindex('"rate_per_s"')])
    with pytest.raises(KeyboardInterrupt):
        scene.run(a_study())
    scene.measured.clear()
    scene.measures = lambda cell: run_line(cell, P50[cell.lane.name])
    assert len(scene.run(a_study()).runs) == 3
    assert scene.measured == ["realtime"], "what was written after the half line can be read"


@pytest.mark.parametrize(
    "other",
    [
        a_study(runs=2),
        replace(a_study(), settings={"rate_per_s": 2000}),
        replace(a_study(), name="sweep"),
        a_study((FLOOR, FAST)),
    ],
)
def test_runs_of_another_study_are_ignored(scene: Scene, other: Study) -> None:
    scene.run(a_study())
    scene.measured.clear()
    result = scene.run(other)
    assert len(scene.measured) == len(result.runs) == other.runs * len(other.cells)


def test_an_unavailable_lane_is_reported_and_the_others_measured(scene: Scene) -> None:
    refused = LaneUnavailable("there is no Java 17", why="only 21 is here", fix="install it")
    lane = FakeLane("flink", "Flink", refuses=refused)
    cells = [cell_of(lane, rate=10.0, key="flink 10"), cell_of(lane, rate=20.0, key="flink 20"), FAST]
    result = scene.run(a_study(cells))
    assert lane.prepared == ["flink"], "asked once, not for every cell"
    assert scene.measured == ["realtime"]
    assert result.unavailable == (Unavailable("flink", "Flink", "there is no Java 17", "only 21 is here"),)
    assert list(result.lanes) == ["realtime"]
    assert result.valid is True
    assert result.verdict == ("flink could not be set up: there is no Java 17",)
    assert "Flink: not available: there is no Java 17" in scene.shown.getvalue()


def test_a_lane_is_prepared_once_for_all_its_cells(scene: Scene) -> None:
    lane = FakeLane()
    scene.run(a_study([cell_of(lane, rate=rate, key=str(rate)) for rate in (1.0, 2.0, 3.0)], runs=2))
    assert lane.prepared == ["realtime"]


def test_a_study_without_runs_is_void(scene: Scene) -> None:
    lane = FakeLane("flink", "Flink", refuses=LaneUnavailable("no Java"))
    result = scene.run(a_study([cell_of(lane)]))
    assert result.valid is False
    assert result.verdict == ("nothing was measured", "flink could not be set up: no Java")


def test_a_skipped_cell_is_reported_and_not_in_the_result(scene: Scene) -> None:
    def skips(cell: CellPlan, runs: Sequence[Any]) -> str:
        return "too slow already" if cell.key == "realtime" and len(runs) == 2 else ""

    result = scene.run(a_study(skips=skips))
    assert scene.measured == ["floor", "microbatch"]
    assert list(result.lanes) == ["floor", "microbatch"]
    assert "left out, too slow already" in scene.shown.getvalue()


def test_falling_behind_is_valid_if_the_study_tolerates_it(scene: Scene) -> None:
    scene.measures = lambda cell: run_line(cell, fell_behind=True, valid=False, problems=["the lane fell behind"])
    assert scene.run(a_study([FAST], tolerates=lambda run: run.fell_behind)).valid is True
    assert scene.run(a_study([FAST], runs=2)).valid is False


def test_a_study_adds_to_its_result(scene: Scene) -> None:
    result = scene.run(
        a_study(add=lambda measured: replace(measured, sweep=tuple(SweepPoint(1, key) for key in measured.lanes)))
    )
    assert [each.key for each in result.sweep or ()] == ["floor", "microbatch", "realtime"]
    assert len(json.loads((scene.folder / RESULT_FILE).read_text())["sweep"]) == 3


def test_histograms_are_written_as_a_standard_log(scene: Scene) -> None:
    latency = np.arange(1, 1001, dtype=np.int64) * 1_000_000

    def measures(cell: CellPlan) -> Run:
        return run_line(cell, histogram=None if cell.key == "floor" else hdr_histogram(latency))

    scene.measures = measures
    cells = [FLOOR, replace(FAST, key="realtime stateless, 200")]
    scene.run(a_study(cells))
    reader = HistogramLogReader(str(scene.folder / HISTOGRAM_FILE), HdrHistogram(1, 600_000_000, 3))
    histogram = reader.get_next_interval_histogram()
    assert histogram is not None
    assert histogram.get_total_count() == 1000
    assert histogram.get_value_at_percentile(50.0) == pytest.approx(500_000, rel=1e-3)
    assert reader.get_next_interval_histogram() is None, "a run without figures has no line"
    reader.close()
    text = (scene.folder / HISTOGRAM_FILE).read_text()
    assert "Tag=realtime_stateless__200-1," in text


def test_the_same_command_repeats_only_void_runs(scene: Scene) -> None:
    void = {"realtime 20"}

    def measures(cell: CellPlan) -> Run:
        if cell.key in void:
            return run_line(cell, 9.0, valid=False, problems=["the load missed its plan"])
        return run_line(cell, 1.0 if void else 5.0)

    scene.measures = measures
    study = a_study([*rates_of(BATCH, 10), *rates_of(FAST, 10, 20)], runs=1, shares_engines=True)
    assert scene.run(study).valid is False
    assert "To repeat only the void runs" in scene.shown.getvalue()
    void.clear()
    scene.lives.clear()
    result = scene.run(study)
    assert scene.lives == [2], "the other lane is done"
    assert "2 of 3 runs are done" in scene.shown.getvalue()
    assert [(run.key, run.result.p50_ms) for run in result.runs] == [
        ("microbatch 10", 1.0), ("realtime 10", 1.0), ("realtime 20", 5.0),
    ], "what was valid keeps its figures"  # fmt: skip
    assert result.valid is True
    assert not (scene.folder / RUNS_FILE).exists()
