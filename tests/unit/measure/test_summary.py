import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.measure.summary import ratio, summary, verdict, with_surroundings
from tailrace.report.result import PERCENTILES, Ratio, Result, Run, Unavailable
from tailrace.version import VERSION

from .fakes import FakeLane, cell_of, run_line

CELL = cell_of(FakeLane(settings={"engine.key": "1"}), settings={"trigger": "500ms"})
SLOW = cell_of(FakeLane("microbatch", "micro-batch"))


def with_result(run: Run, **changed: Any) -> Run:
    return replace(run, result=replace(run.result, **changed))


def test_figures_are_medians_and_counts_are_sums() -> None:
    runs = [run_line(CELL, p50) for p50 in (1.0, 5.0, 2.0)]
    runs[1] = with_result(runs[1], lost=2, duplicated=1, max_ms=99.0)
    runs[2] = replace(runs[2], merged=7)
    lane = summary(CELL, runs)
    assert [lane.percentile(name) for name in PERCENTILES] == [2.0, 4.0, 6.0, 8.0]
    assert lane.spread == {
        "p50_ms": (1.0, 5.0),
        "p95_ms": (2.0, 10.0),
        "p99_ms": (3.0, 15.0),
        "p999_ms": (4.0, 20.0),
    }
    assert lane.max_ms == 99.0, "the greatest of all runs"
    assert (lane.samples, lane.lost, lane.duplicated, lane.merged, lane.runs) == (300, 2, 1, 7, 3)
    assert lane.settings == {"engine.key": "1", "trigger": "500ms"}
    assert lane.valid is True


def test_an_even_number_of_runs_has_an_interpolated_median() -> None:
    assert summary(CELL, [run_line(CELL, 1.0), run_line(CELL, 2.0)]).p50_ms == 1.5


def test_a_percentile_that_one_run_lacks_is_none() -> None:
    """The median of those runs that were long enough would be about other runs than its neighbours."""
    runs = [run_line(CELL, 1.0), with_result(run_line(CELL, 2.0), p999_ms=None)]
    lane = summary(CELL, runs)
    assert lane.p999_ms is None
    assert "p999_ms" not in lane.spread
    assert lane.p99_ms == 4.5


def test_a_lane_without_results_has_no_figures() -> None:
    lane = summary(CELL, [run_line(CELL, None, valid=False)])
    assert [*(lane.percentile(name) for name in PERCENTILES), lane.max_ms] == [None] * 5
    assert (lane.spread, lane.valid) == ({}, False)


def test_one_void_run_makes_a_lane_void() -> None:
    assert summary(CELL, [run_line(CELL), run_line(CELL, valid=False)]).valid is False


def test_a_ratio_is_the_median_over_pairs_of_runs() -> None:
    slow = [run_line(SLOW, p50) for p50 in (100.0, 300.0, 200.0)]
    fast = [run_line(CELL, p50) for p50 in (1.0, 2.0, 1.0)]
    assert ratio(slow, fast, "p50") == Ratio(
        work="stateless",
        rate_per_s=1000.0,
        slow="microbatch",
        fast="realtime",
        percentile="p50",
        median=150.0,
        low=100.0,
        high=200.0,
        runs=3,
    )
    compared = ratio(slow, fast, "p99.9")
    assert compared is not None
    assert compared.percentile == "p99.9"


@pytest.mark.parametrize("percentile", PERCENTILES)
def test_no_ratio_if_a_run_lacks_the_percentile(percentile: str) -> None:
    full, lacking = (
        [run_line(SLOW), run_line(SLOW)],
        [run_line(CELL), with_result(run_line(CELL), **{PERCENTILES[percentile]: None})],
    )
    assert ratio(full, lacking, percentile) is None
    assert ratio(lacking, full, percentile) is None
    zero = [run_line(CELL), with_result(run_line(CELL), **{PERCENTILES[percentile]: 0.0})]
    assert ratio(full, zero, percentile) is None, "nothing is infinitely faster"
    assert ratio([], [], percentile) is None


def test_the_verdict_names_void_runs_and_unavailable_lanes() -> None:
    good = run_line(CELL, run=1)
    bad = run_line(SLOW, problems=["it lied", "it broke"], valid=False, run=2)
    missing = [Unavailable("quix", "Quix", "no Python 3.11", "")]
    assert verdict([good], []) == (True, ())
    assert verdict([good, bad], missing) == (
        False,
        (
            "microbatch, run 2: it lied",
            "microbatch, run 2: it broke",
            "quix could not be set up: no Python 3.11",
        ),
    )
    assert verdict([good], missing)[0] is True, "what could not be measured does not spoil what was"


def test_surroundings_have_versions_and_machine() -> None:
    result = with_surroundings(Result(), {"flink": "2.2.1"})
    parsed = Result.from_json(json.loads(json.dumps(result.to_json())))
    assert parsed == result, "what is written is what is read"
    assert (parsed.schema, parsed.tool) == (1, f"tailrace {VERSION}")
    assert parsed.versions["flink"] == "2.2.1"
    assert {"tailrace", "python", "confluent-kafka"} <= parsed.versions.keys()
    assert parsed.clients["producer"]["acks"] == "all"
    assert parsed.clients["producer"]["linger.ms"] == "0"
    assert parsed.clients["topics"] == {"message.timestamp.type": "LogAppendTime"}
    assert parsed.machine is not None
    assert (parsed.machine.cores or 0) >= 1
    assert (parsed.machine.memory_gib or 0) > 0
    assert parsed.machine.cpu
    assert parsed.commit is None or len(parsed.commit) == 40
