import math
from collections.abc import Callable
from typing import Any

import pytest

from tailrace.report.result import Result
from tailrace.report.view import View

from .results import STUDIES, bench_result, engines_result, rates_result, sweep_result


@pytest.mark.parametrize("make", STUDIES.values(), ids=STUDIES)
def test_every_series_can_be_drawn(make: Callable[[], dict[str, Any]]) -> None:
    charts = View(Result.from_json(make())).charts
    assert charts
    for name, chart in charts.items():
        assert name == chart["id"]
        assert chart["alt"]
        for series in chart["series"]:
            assert len(series["x"]) == len(series["y"]) > 0
            assert list(series["x"]) == sorted(series["x"])
            assert all(value is None or value > 0 for value in series["y"]), "a logarithmic axis has no zero"


def test_the_typical_run_is_drawn_on_top() -> None:
    ((_, chart),) = View(Result.from_json(bench_result())).percentile_charts
    assert [bool(series.get("faint")) for series in chart["series"]] == [True] * 6 + [False] * 3
    assert {series["label"] for series in chart["series"][-3:]} == {
        "Kafka alone", "micro-batch, every 500 ms", "real time",
    }  # fmt: skip
    assert all(50 <= x < 100 for series in chart["series"] for x in series["x"])


def test_with_many_lanes_only_the_typical_run_is_drawn() -> None:
    for group, chart in View(Result.from_json(engines_result())).percentile_charts:
        assert len(chart["series"]) == len(group.lines)


def test_the_percentile_axis_ends_below_100() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["percentiles"] = [[0.0, 0.1], [50.0, 0.3], [99.0, math.nan], [100.0, 9.0]]
    ((_, chart),) = View(Result.from_json(result)).percentile_charts
    assert {x for series in chart["series"] for x in series["x"]} == {50.0}


def test_charts_over_time_share_their_scale_and_mark_boundaries() -> None:
    ((_, charts),) = View(Result.from_json(bench_result())).timelines
    assert [chart["title"] for chart in charts] == ["Kafka alone", "micro-batch, every 500 ms", "real time"]
    assert len({(chart["y"]["low"], chart["y"]["high"]) for chart in charts}) == 1
    assert [mark["x"] for mark in charts[2]["marks"]] == [12.0, 32.0, 52.0]
    assert charts[0]["marks"] == []
    assert "3 batch boundaries" in charts[2]["alt"]


def test_a_step_without_records_is_a_gap() -> None:
    result = bench_result()
    for run in result["runs"]:
        run["timeline"]["p50_ms"][3] = None
        run["timeline"]["max_ms"][3] = 0
    ((_, charts),) = View(Result.from_json(result)).timelines
    (p50,) = [series for series in charts[0]["series"] if series["label"] == "p50"]
    (most,) = [series for series in charts[0]["series"] if series["label"] == "max"]
    assert p50["y"][3] is None
    assert most["y"][3] == 0.001


def test_the_sweep_is_ordered_with_other_lanes_as_level_lines() -> None:
    result = sweep_result()
    result["sweep"].reverse()
    chart = View(Result.from_json(result)).sweep_chart
    assert chart is not None
    assert chart["x"]["names"] == ["0", "100", "200", "500", "1,000", "2,000"]
    assert [series["label"] for series in chart["series"]] == ["p50", "p95", "p99", "max", "real time, p50"]
    assert len(set(chart["series"][-1]["y"])) == 1


def test_the_ladder_has_a_line_per_lane_and_the_bound() -> None:
    result = rates_result()
    del result["rates"]["lanes"]["realtime-stock"]["ladder"][0]
    chart = View(Result.from_json(result)).ladder_chart
    assert chart is not None
    assert [series["label"] for series in chart["series"]] == [
        "real time", "real time, Spark's defaults", "bound, 100 ms",
    ]  # fmt: skip
    assert chart["series"][0]["y"][0] is None, "too few samples at 10/s for a p99"
    assert len(chart["series"][1]["y"]) == 7
