"""The page on result.json names every key that a benchmark writes, and no others."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.output import console
from tailrace.errors import MeasurementFailed
from tailrace.measure import study as studies
from tailrace.measure.lanes import Floor
from tailrace.measure.options import BenchOptions
from tailrace.measure.run import Bench, CellPlan, failed_run
from tailrace.measure.screen import Screen
from tailrace.measure.studies import gap_study, rates_study, sweep_study
from tailrace.measure.study import Study, run_study
from tailrace.report.result import Boundary, Delay, Kill, Ratio, Reason, Result, Run, Span, Timeline, Usage

from .source import ROOT

Json = dict[str, Any]
PAGE = (ROOT / "docs" / "reference" / "result.md").read_text()
OPTIONS = BenchOptions(lanes=("realtime",))
FAILED = MeasurementFailed("it ended", why="no memory")


def table(title: str) -> dict[str, str]:
    """The last column of a section's table, by each key of the first."""
    section = re.split(rf"^#+ {re.escape(title)}$", PAGE, flags=re.MULTILINE)[1]
    section = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    assert rows, title
    return {key: row[-1] for row in rows for key in re.findall(r"`([^`]+)`", row[0])}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", text))


def run_of(cell: CellPlan) -> Run:
    return replace(failed_run(cell, FAILED), run=1, order=1)


def fields_of(kind: type[Any]) -> set[str]:
    return {each.name for each in fields(kind)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """The JSON of a real study in which every run fails at once."""

    def fails(*_: object) -> Json:
        raise FAILED

    with pytest.MonkeyPatch.context() as patch, Screen(console()) as screen:
        patch.setattr(studies, "run_cells", fails)
        study = Study("bench", [OPTIONS.cell(Floor())], 1, OPTIONS.as_settings())
        out = tmp_path_factory.mktemp("out")
        run_study(study, Bench("b:1", {}, 2, Path("scratch")), screen, out)
        written: Json = json.loads((out / "result.json").read_text())
        return written


def test_result(whole: Json) -> None:
    assert set(table("The result")) == set(whole)
    assert named(table("The result")["machine"]) == set(whole["machine"])
    assert list(whole["clients"]) == ["producer", "probe", "topics"]


def test_settings() -> None:
    assert set(table("Settings")) == set(OPTIONS.as_settings())
    added = named(PAGE.partition("A study adds what it varies:")[2].partition("\n")[0])
    studies_with_more = (sweep_study(OPTIONS), rates_study(OPTIONS), gap_study(OPTIONS))
    assert {key for study in studies_with_more for key in study.settings} - set(OPTIONS.as_settings()) <= added


def test_lane(whole: Json) -> None:
    (lane,) = whole["lanes"].values()
    assert set(table("A lane")) == set(lane)


def test_run(whole: Json) -> None:
    (run,) = whole["runs"]
    described = table("A run")
    assert set(described) == set(run)
    assert named(described["result"]) == set(run["result"])
    assert named(described["reasons"]) == set(Reason)
    for name, kind in {"publish_delay_ms": Delay, "timeline": Timeline, "boundaries": Boundary, "kill": Kill}.items():
        assert fields_of(kind) <= named(described[name])
    assert fields_of(Usage) <= named(described["resources"])
    assert fields_of(Span) <= named(described["spans_ms"])


def test_ratio() -> None:
    assert set(table("A ratio")) == fields_of(Ratio)


def test_additions_of_a_study() -> None:
    added: Json = {}
    for study in (sweep_study(OPTIONS), rates_study(OPTIONS), gap_study(OPTIONS)):
        added |= study.add(Result(runs=tuple(run_of(cell) for cell in study.cells))).to_json()
    described = table("What a study adds")
    assert set(described) == set(added) - set(Result().to_json())
    assert set(added["sweep"][0]) <= named(described["sweep"])
    (ladder,) = added["rates"]["lanes"].values()
    assert {*added["rates"], *ladder, *ladder["ladder"][0]} <= named(described["rates"])


def test_interval() -> None:
    study = gap_study(replace(OPTIONS, rate=1000), (5,), kills=False)
    boundary = Boundary(at_s=1.0, batch=2, pause_ms=130.0, parts_ms={"planning": 20.0})
    runs = tuple(replace(run_of(cell), boundaries=(boundary,)) for cell in study.cells)
    interval = study.add(Result(runs=runs)).to_json()["gap"]["intervals"][0]
    assert set(table("An interval")) == set(interval)
