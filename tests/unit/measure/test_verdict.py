"""Each way to spoil a run makes it void with a sentence; a clean run has none."""

from typing import Any

import numpy as np
import pytest

from tailrace.measure.audit import Audit
from tailrace.measure.latency import growth_ms_per_s, lane_result
from tailrace.measure.measurement import Measurement
from tailrace.measure.schedule import NS_PER_S
from tailrace.measure.verdict import Checks, fell_behind, problems

from .fakes import RECORDS, SECONDS, START, arrivals_of, load_report, measurement

CLEAN = Audit(RECORDS, 0, 0, None)


def problems_in(
    window: Measurement, audited: Audit = CLEAN, *, boundaries: int = 0, checks: Checks | None = None
) -> list[str]:
    measured = window.arrivals.within(window.first, window.end)
    firsts = measured.firsts()
    result = lane_result(firsts.latency_ns, expected=window.end - window.first, duplicated=len(measured) - len(firsts))
    growth = growth_ms_per_s(firsts.sent_ns, firsts.latency_ns)
    reported = problems(window, result, audited, growth, boundaries, checks or Checks())
    return [problem.text for problem in reported]


def test_a_clean_run_is_valid() -> None:
    assert problems_in(measurement()) == []


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"failed": 1200}, "1,200 records could not be sent"),
        ({"measured": 9_000, "took_s": 10.0}, "the load missed its plan: 900 records/s instead of 1,000"),
        ({"took_s": 10.2}, "the load missed its plan: 980 records/s instead of 1,000"),
        ({"late_ms_p99": 31.0}, "the load missed its plan: one record in a hundred was more than 31 ms late"),
        ({"measured": 0, "took_s": 0.0}, "the load missed its plan: 0 records/s instead of 1,000"),
    ],
)
def test_a_load_that_missed_its_plan(changed: dict[str, Any], sentence: str) -> None:
    assert problems_in(measurement(load=load_report(**changed))) == [sentence]


@pytest.mark.parametrize("changed", [{"took_s": 10.05}, {"late_ms_p99": 24.0}, {"late_ms_max": 900.0}])
def test_a_load_within_its_limits_is_valid(changed: dict[str, Any]) -> None:
    assert problems_in(measurement(load=load_report(**changed))) == []


def test_a_lane_that_drops_one_record_in_a_thousand() -> None:
    kept = [number for number in range(RECORDS) if number % 1000 != 7]
    assert problems_in(measurement(arrivals_of(kept))) == ["10 of 10,000 records never came out"]


def test_a_lane_that_writes_every_result_twice() -> None:
    seen = measurement(arrivals_of([*range(RECORDS), *range(RECORDS)]))
    assert problems_in(seen) == ["10,000 records came out more than once"]


def test_one_repeated_record_voids_a_run() -> None:
    assert problems_in(measurement(arrivals_of([*range(RECORDS), 5]))) == ["1 record came out more than once"]


def test_records_outside_the_window_do_not_count() -> None:
    assert problems_in(measurement(arrivals_of([-2, -2, *range(RECORDS), RECORDS, RECORDS]))) == []


def test_a_lane_that_reads_a_stale_topic() -> None:
    assert problems_in(measurement(), Audit(RECORDS, 0, 3, None)) == [
        "3 results belong to records that this run never sent: a stale topic"
    ]


def test_results_that_are_wrong() -> None:
    assert problems_in(measurement(), Audit(RECORDS, 17, 0, None)) == ["17 results are wrong"]


def test_a_late_probe() -> None:
    late = arrivals_of(range(RECORDS), ready_ns=START + 2 * NS_PER_S)
    assert problems_in(measurement(late)) == ["the probe was late: 2.0 s into the window"]
    never = arrivals_of(range(RECORDS), ready_ns=None)
    assert problems_in(measurement(never)) == ["the probe never caught up with the topic"]
    at_once = arrivals_of(range(RECORDS), ready_ns=START)
    assert problems_in(measurement(at_once)) == []


def test_a_lane_that_falls_behind() -> None:
    latency = np.linspace(1.0, 1_001.0, RECORDS)
    assert problems_in(measurement(arrivals_of(range(RECORDS), latency.tolist()))) == [
        "the lane fell behind: latency grew by 1,000 ms over the window"
    ]


def test_a_slow_lane_may_vary_more_than_a_fast_one() -> None:
    """Micro-batches of half a second drift against the window; a lane of a millisecond has no such excuse."""
    seen = measurement()
    slow = lane_result(seen.arrivals.latency_ns * 300, expected=RECORDS, duplicated=0)
    fast = lane_result(seen.arrivals.latency_ns, expected=RECORDS, duplicated=0)
    assert not fell_behind(seen, slow, 150 / SECONDS, Checks())
    assert fell_behind(seen, slow, 210 / SECONDS, Checks())
    assert fell_behind(seen, fast, 21 / SECONDS, Checks())
    assert not fell_behind(seen, fast, 19 / SECONDS, Checks())
    assert not fell_behind(seen, fast, 999 / SECONDS, Checks(held_s=1.0)), "a wait of its own is no falling behind"
    assert fell_behind(seen, fast, 1001 / SECONDS, Checks(held_s=1.0))
    assert not fell_behind(seen, fast, -500 / SECONDS, Checks()), "catching up is not falling behind"


def test_a_window_with_too_few_boundaries() -> None:
    assert problems_in(measurement(), boundaries=2, checks=Checks(boundaries=3)) == [
        "2 batch boundaries in the window, 3 are needed to show what they cost"
    ]
    assert problems_in(measurement(), boundaries=3, checks=Checks(boundaries=3)) == []


def test_merged_records_are_not_lost() -> None:
    seen = measurement(arrivals_of(range(0, RECORDS, 3)))
    assert problems_in(seen, checks=Checks(merges=True)) == []
    assert problems_in(seen) != []


def test_a_merging_lane_must_have_a_result() -> None:
    """A lane that falls silent has lost nothing that was counted on, and has not grown slower either."""
    silent = measurement(arrivals_of([-1]))
    assert problems_in(silent, checks=Checks(merges=True)) == ["no result came out for the records of the window"]


def test_after_a_kill_records_may_repeat_but_not_be_lost() -> None:
    latency = [*np.linspace(1.0, 1_001.0, RECORDS), *[500.0] * 900]
    seen = measurement(arrivals_of([*range(RECORDS), *range(900)], latency))
    assert problems_in(seen, checks=Checks(replays=True)) == []
    short = measurement(arrivals_of(range(RECORDS - 1)))
    assert problems_in(short, checks=Checks(replays=True)) == ["1 of 10,000 records never came out"]


def test_all_problems_are_reported() -> None:
    spoilt = measurement(arrivals_of([*range(1, RECORDS), 5], ready_ns=None), load=load_report(failed=1))
    sentences = problems_in(spoilt, Audit(RECORDS, 1, 1, None), checks=Checks(boundaries=1))
    assert len(sentences) == 7
    assert len(set(sentences)) == 7
