"""The cells of each study, and its conclusions from their runs."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.errors import OptionRefused, PipelineNotFound
from tailrace.measure import studies as module
from tailrace.measure.lanes import all_lanes
from tailrace.measure.lanes.spark import SparkLane
from tailrace.measure.options import PROFILES, BenchOptions, caveats, options_of
from tailrace.measure.run import CellPlan
from tailrace.measure.studies import (
    engines_study,
    gap_study,
    generator,
    is_finding,
    lanes_study,
    pipeline_study,
    rates_study,
    replay,
    sweep_study,
    why_not,
)
from tailrace.measure.study import Study, groups_of
from tailrace.measure.traffic.probe import ByLineage
from tailrace.measure.traffic.records import Generated, as_settings, maker
from tailrace.measure.works import Work
from tailrace.report.result import (
    Boundary,
    Gap,
    GapInterval,
    Kill,
    Ladder,
    LaneResult,
    Rates,
    Reason,
    Result,
    Run,
    SweepPoint,
    Usage,
)

from .fakes import run_line

OPTIONS = options_of("article", {})


def line(cell: CellPlan, **changed: Any) -> Run:
    return run_line(cell, **changed)


def with_p99(cell: CellPlan, p99: float | None, **changed: Any) -> Run:
    run = line(cell, **changed)
    return replace(run, result=replace(run.result, p99_ms=p99, max_ms=p99 and 3 * p99))


ALL = {
    "bench": lanes_study(OPTIONS, "article"),
    "sweep": sweep_study(OPTIONS),
    "engines": engines_study(OPTIONS),
    "rates": rates_study(OPTIONS),
    "gap": gap_study(OPTIONS),
}


@pytest.mark.parametrize("study", ALL.values(), ids=ALL)
def test_cells_of_a_study_are_distinct_and_supported(study: Study) -> None:
    keys = [cell.key for cell in study.cells]
    assert len(set(keys)) == len(keys)
    assert all(cell.work in cell.lane.works for cell in study.cells)
    assert json.loads(json.dumps(study.settings))
    assert len(study.fingerprint) == 16


def test_names_of_studies_are_unique() -> None:
    assert {name: study.name for name, study in ALL.items()} == {name: name for name in ALL}
    assert len({study.fingerprint for study in ALL.values()}) == len(ALL)


def test_a_benchmark_has_the_chosen_lanes_and_the_notes_of_the_profile() -> None:
    study = ALL["bench"]
    assert [cell.key for cell in study.cells] == ["floor", "microbatch", "realtime"]
    assert study.profile == "article"
    assert list(study.notes) == caveats(PROFILES["article"])


def test_changes_of_the_profile_are_noted() -> None:
    study = lanes_study(options_of("quick", {"rate": 5, "payload": 200}), "quick")
    assert study.notes[-1] == "Changed from the profile quick: rate_per_s, payload_bytes."


def test_a_lane_that_does_not_support_the_work_is_refused() -> None:
    with pytest.raises(OptionRefused) as refused:
        lanes_study(options_of("quick", {"work": "join", "lanes": ("continuous",)}), "quick")
    assert refused.value.what == "lane continuous does not support the work join"
    assert refused.value.fix == "use --work with one of: stateless"


def test_a_sweep_has_micro_batch_at_every_interval() -> None:
    study = sweep_study(OPTIONS, (0, 50, 1000))
    assert [cell.key for cell in study.cells[:3]] == ["floor", "continuous", "realtime"]
    batches = study.cells[3:]
    assert [cell.trigger_every_ms for cell in batches] == [0, 50, 1000]
    assert [cell.title.rpartition(", ")[2] for cell in batches] == ["0ms", "50ms", "1000ms"]
    assert study.add(Result()).sweep == (
        SweepPoint(0, "microbatch 0 ms"),
        SweepPoint(50, "microbatch 50 ms"),
        SweepPoint(1000, "microbatch 1000 ms"),
    )
    assert {cell.key for cell in batches} == {each.key for each in study.add(Result()).sweep or ()}


def test_engines_are_measured_at_every_supported_work_and_rate() -> None:
    study = engines_study(OPTIONS, (Work.STATELESS, Work.PYTHON), (200.0, 8000.0))
    keys = {cell.key for cell in study.cells}
    assert {"floor stateless 200", "floor stateless 8000", "realtime stateless 200", "python-five python 8000"} <= keys
    assert "floor python 200" not in keys, "without an engine there is only one work"
    assert not {cell.lane.name for cell in study.cells} & {"microbatch", "continuous"}
    for cell in study.cells:
        assert cell.key == f"{cell.lane.name} {cell.work} {cell.plan.flow.rate_per_s:g}"


def test_one_engine_process_runs_all_rates_from_the_lowest() -> None:
    study = engines_study(OPTIONS, (Work.STATELESS, Work.AGGREGATE), (8000.0, 200.0))
    assert study.shares_engines
    for group in groups_of(study.cells, shares_engines=True):
        assert [cell.plan.flow.rate_per_s for cell in group] == [200.0, 8000.0]


def test_the_window_covers_results_that_are_held_back() -> None:
    cells = engines_study(OPTIONS, (Work.STATELESS, Work.AGGREGATE), (200.0,)).cells
    held = {cell.key for cell in cells if cell.plan.held_s}
    assert held == {"kafka-streams aggregate 200"}
    short = engines_study(replace(OPTIONS, seconds=5), (Work.AGGREGATE,), (200.0,)).cells
    assert {cell.lane.name: cell.plan.seconds for cell in short if cell.plan.seconds != 5} == {"kafka-streams": 30.0}


@pytest.mark.parametrize(
    ("reasons", "cores", "is_one"),
    [
        ([], 1.0, False),
        ([Reason.FELL_BEHIND], 0.1, True),
        ([Reason.LATE_LOAD], 0.95, True),
        ([Reason.LATE_LOAD], 0.5, False),
        ([Reason.LATE_LOAD, Reason.FELL_BEHIND], 0.95, True),
        ([Reason.FELL_BEHIND, Reason.LOST_RECORDS], 0.95, False),
    ],
)
def test_only_falling_behind_is_a_finding(
    reasons: list[Reason], cores: float, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    (cell,) = engines_study(OPTIONS, (Work.STATELESS,), (200.0,), ("realtime",)).cells
    used = {"engine": Usage(cores), "broker": Usage(cores)}
    assert is_finding(line(cell, reasons=reasons, valid=not reasons, resources=used)) is is_one


def test_engines_study_takes_lanes() -> None:
    study = engines_study(OPTIONS, (Work.STATELESS,), (200.0,), ("floor", "microbatch"))
    assert [cell.lane.name for cell in study.cells] == ["floor", "microbatch"]


def rates_of(result: Result) -> Rates:
    assert result.rates is not None
    return result.rates


def climb(study: Study, runs: list[Run], p99: Any) -> list[str]:
    """Measure up the ladder as a study would: what it skips is not measured."""
    for cell in study.cells:
        if not study.skips(cell, runs):
            runs.append(with_p99(cell, p99(cell)))
    return [run.key for run in runs]


def test_rates_rise_until_a_lane_cannot_keep_up() -> None:
    study = rates_study(BenchOptions(lanes=("realtime", "microbatch", "floor")), (1000, 10, 8000, 4000), 100.0)
    runs: list[Run] = []

    def p99(cell: CellPlan) -> float:
        return 500.0 if cell.plan.flow.rate_per_s > (10 if cell.lane.name == "microbatch" else 1000) else 5.0

    assert climb(study, runs, p99) == [
        "realtime 10/s", "microbatch 10/s", "realtime 1000/s", "microbatch 1000/s", "realtime 4000/s",
    ]  # fmt: skip
    rates = rates_of(study.add(Result(runs=tuple(runs))))
    assert rates.bound_ms == 100.0
    assert rates.lanes["realtime"].highest_per_s == 1000
    assert rates.lanes["microbatch"].highest_per_s == 10
    assert [rung.sustained for rung in rates.lanes["realtime"].ladder] == [True, True, False]
    assert rates.lanes["realtime"].ladder[-1].why == "p99 500.0 ms"
    assert study.tolerates(Run(problems=("too fast",))), "the top of a ladder is no fault of the study"
    assert "was already too much" in study.skips(study.cells[-1], runs)


def test_one_failed_run_ends_the_ladder() -> None:
    study = rates_study(BenchOptions(lanes=("realtime",)), (10, 20))
    one, other = study.cells
    runs = [with_p99(one, 5.0), with_p99(other, 5.0), with_p99(other, 900.0)]
    assert rates_of(study.add(Result(runs=tuple(runs)))).lanes["realtime"].highest_per_s == 10


def test_a_lane_that_sustains_nothing_has_no_highest_rate() -> None:
    study = rates_study(BenchOptions(lanes=("realtime",)), (10,))
    assert rates_of(study.add(Result(runs=(with_p99(study.cells[0], 900.0),)))).lanes["realtime"].highest_per_s is None
    assert rates_of(study.add(Result(runs=()))).lanes["realtime"] == Ladder()


def test_why_a_rate_is_not_sustained() -> None:
    cell = ALL["rates"].cells[0]
    assert why_not(with_p99(cell, 99.0), 100.0) == ""
    assert why_not(with_p99(cell, 101.0), 100.0) == "p99 101.0 ms"
    assert why_not(with_p99(cell, 5.0, problems=["2 records never came out"]), 100.0) == "2 records never came out"
    assert why_not(with_p99(cell, None), 100.0) == "no result came out"
    few = replace(line(cell), result=LaneResult(max_ms=7.0))
    assert why_not(few, 100.0) == "", "too few records for a percentile: the longest wait counts"


def boundary(pause_ms: float | None, **parts: float) -> Boundary:
    return Boundary(1.0, 1, pause_ms, parts)


def find(cells: Sequence[CellPlan], key: str) -> CellPlan:
    return next(cell for cell in cells if cell.key == key)


def test_a_window_of_the_gap_study_contains_its_boundaries() -> None:
    study = gap_study(options_of("article", {"seconds": 30.0}), (5, 30))
    for interval in (5, 30):
        cell = find(study.cells, f"realtime aggregate {interval}s")
        assert cell.checkpoint_every_s == interval
        assert cell.needs_boundaries == 3
        assert cell.plan.seconds >= 3 * interval
        assert cell.kill_after_s is None
        killed = find(study.cells, f"realtime aggregate {interval}s killed")
        assert killed.kill_after_s is not None
        assert 15 < killed.kill_after_s < 15 + interval, "after the warm-up and before the interval's end"
        assert killed.needs_boundaries == 0
    assert not [cell for cell in gap_study(OPTIONS, (5,), kills=False).cells if cell.kill_after_s]


def test_the_gap_has_pauses_parts_and_replay_by_interval() -> None:
    study = gap_study(options_of("article", {"rate": 1000.0}), (5,))
    plain = find(study.cells, "realtime stateless 5s")
    killed = find(study.cells, "realtime stateless 5s killed")
    held = [boundary(100.0, planning=10), boundary(300.0, planning=30, offsets=2), boundary(None), boundary(200.0)]
    kill = Kill(at_s=3.0, silent_s=6.5, replayed=4200)
    runs = [line(plain, boundaries=held), line(killed, kill=kill, boundaries=[boundary(9000.0)])]
    assert study.add(Result(runs=tuple(runs))).gap == Gap(
        (
            GapInterval(
                work="stateless",
                checkpoint_every_s=5,
                key="realtime stateless 5s",
                pauses_ms=(100.0, 300.0, 200.0),
                parts_ms={"planning": 20, "offsets": 2},
                overhead_percent=4.0,
                replay_records=4200,
                replay_bound_records=5000,
                recovery_s=6.5,
            ),
        )
    ), "the pause of a kill is none of a boundary's, and an interval that showed none is left out"


def test_every_lane_is_in_a_study() -> None:
    seen = {cell.lane.name for study in ALL.values() for cell in study.cells}
    others = {"microbatch-stock", "realtime-timer", "realtime-shared", "realtime-builtin"}
    others |= {"realtime-at-least-once", "realtime-spark-sink"}
    assert set(all_lanes()) - seen <= others, "those that show what a setting is worth"


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def pipeline_file(name: str, more: str = "", sources: str = 'tr.KafkaSource("in", "a int")') -> str:
    """A file of its own for each test: a module is loaded once."""
    Path(f"{name}.py").write_text(
        f'import tailrace as tr\npipeline = tr.Pipeline("fraud", [{sources}], lambda frame: frame, '
        f'tr.KafkaSink("out"){more})\n'
    )
    return f"{name}.py"


@pytest.mark.usefixtures("own_path")
def test_a_pipeline_is_measured_in_both_modes_and_against_the_floor() -> None:
    records = Generated("made.py", "make")
    study = pipeline_study(pipeline_file("bench_own_modes"), BenchOptions(trigger_every="200ms"), records)
    assert [cell.lane.name for cell in study.cells] == ["floor", "microbatch", "realtime"]
    assert [cell.title for cell in study.cells[1:]] == ["fraud, micro-batch, 200ms", "fraud, real time"]
    for cell in study.cells:
        assert cell.plan.flow.records == records
        assert cell.plan.flow.stamped, "a result is traced to its record, and the record must say its number"
        assert cell.plan.known_by == ByLineage()
    assert "cannot detect losses" in study.notes[0]
    assert study.settings["records"] == "generated"


@pytest.mark.usefixtures("own_path")
def test_the_pipeline_file_is_passed_as_an_absolute_path(tmp_path: Path) -> None:
    study = pipeline_study(pipeline_file("bench_own_place"), BenchOptions(), Generated("made.py", "make"))
    for cell in study.cells[1:]:
        assert isinstance(cell.lane, SparkLane)
        assert cell.lane.runs.pipeline == str(tmp_path / "bench_own_place.py")
        assert cell.lane.runs.trigger == cell.lane.name


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize(
    ("name", "more", "sources", "what"),
    [
        ("bench_own_bare", ", lineage=False", 'tr.KafkaSource("in", "a int")', "has lineage=False"),
        ("bench_own_two", "", 'tr.KafkaSource("a", "a int"), tr.KafkaSource("b", "a int")', "has 2 sources"),
    ],
)
def test_a_pipeline_that_cannot_be_measured_is_refused(name: str, more: str, sources: str, what: str) -> None:
    with pytest.raises(OptionRefused) as refused:
        pipeline_study(pipeline_file(name, more, sources), BenchOptions(), Generated("made.py", "make"))
    assert what in refused.value.what
    assert refused.value.fix.startswith("measure ")


@pytest.mark.usefixtures("own_path")
def test_a_generator_is_a_function_in_a_file(tmp_path: Path) -> None:
    Path("made.py").write_text("def make(number):\n    return {'n': number}\n")
    assert generator("made.py:make") == Generated(str(tmp_path / "made.py"), "make")
    with pytest.raises(PipelineNotFound) as refused:
        generator("made.py")
    assert refused.value.fix == "use FILE:FUNCTION"
    with pytest.raises(PipelineNotFound, match="has no function absent"):
        generator("made.py:absent")


@pytest.mark.usefixtures("own_path")
def test_records_of_a_topic_are_saved_for_replay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    records = [SimpleNamespace(key=None, value=b"a"), SimpleNamespace(key=b"k", value=None)]
    records += [SimpleNamespace(key=b"k", value=b"%d" % number) for number in range(5)]
    monkeypatch.setattr(module, "read_records", lambda _client, _topic: iter(records))
    kept: Any = replay("b:1", "old", 4, tmp_path / "new")
    make = maker(as_settings(kept))
    assert [make(number, 0) for number in range(4)] == [(None, b"a"), (b"k", b"0"), (b"k", b"1"), (None, b"a")]
    with pytest.raises(OptionRefused, match="no records to replay"):
        replay("b:1", "old", 0, tmp_path / "new")
