"""What the studies of single features write, without a broker."""

import json
from pathlib import Path

from tailrace.demo.feature_costs import LineageCost, LineageOptions, StaticTableCosts, TableCost
from tailrace.report.result import LaneResult

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def test_lineage_costs_the_difference_of_the_medians() -> None:
    runs = {lane: [LaneResult(p50_ms=ms) for ms in values] for lane, values in (("on", (3, 5, 4)), ("off", (1, 3, 2)))}
    cost = LineageCost(LineageOptions(rounds=3), runs)
    assert (cost.median_p50_ms("on"), cost.p50_difference_ms) == (4, 2)
    saved = json.loads((RESULTS / "lineage.json").read_text())
    written = cost.as_json()
    assert (written.keys(), written["settings"].keys()) == (saved.keys(), saved["settings"].keys())
    assert written["machine"].keys() == saved["machine"].keys()
    assert written["lanes"]["on"][0].keys() == saved["lanes"]["on"][0].keys()


def test_the_costs_of_static_tables_are_written_by_size() -> None:
    written = StaticTableCosts({0: TableCost(2.0, [1.0, 2.0, 3.0])}).as_json()
    saved = json.loads((RESULTS / "static-table.json").read_text())
    assert written.keys() == saved.keys()
    assert written["rows"] == {"0": {"median_ms": 2.0, "each_ms": [1.0, 2.0, 3.0]}}
    assert written["rows"]["0"].keys() == saved["rows"]["0"].keys()
