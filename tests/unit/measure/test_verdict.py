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


def told(seen: Measurement, found: Audit = CLEAN, *, held: int = 0, checks: Checks | None = None) -> list[str]:
    measured = seen.arrivals.within(seen.first, seen.end)
    firsts = measured.firsts()
    result = lane_result(firsts.latency_ns, expected=seen.end - seen.first, duplicated=len(measured) - len(firsts))
    growth = growth_ms_per_s(firsts.sent_ns, firsts.latency_ns)
    reported = problems(seen, result, found, growth, held, checks or Checks())
    return [problem.text for problem in reported]


def test_a_clean_run_is_valid() -> None:
    assert told(measurement()) == []


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
    assert told(measurement(load=load_report(**changed))) == [sentence]


@pytest.mark.parametrize("changed", [{"took_s": 10.05}, {"late_ms_p99": 24.0}, {"late_ms_max": 900.0}])
def test_a_load_that_nearly_missed_its_plan_is_no_problem(changed: dict[str, Any]) -> None:
    assert told(measurement(load=load_report(**changed))) == []


def test_a_lane_that_drops_one_record_in_a_thousand() -> None:
    kept = [number for number in range(RECORDS) if number % 1000 != 7]
    assert told(measurement(arrivals_of(kept))) == ["10 of 10,000 records never came out"]


def test_a_lane_that_gives_everything_twice() -> None:
    seen = measurement(arrivals_of([*range(RECORDS), *range(RECORDS)]))
    assert told(seen) == ["10,000 records came out more than once"]


def test_one_record_that_came_twice_is_enough() -> None:
    assert told(measurement(arrivals_of([*range(RECORDS), 5]))) == ["1 record came out more than once"]


def test_records_outside_of_the_window_are_neither_lost_nor_repeated() -> None:
    assert told(measurement(arrivals_of([-2, -2, *range(RECORDS), RECORDS, RECORDS]))) == []


def test_a_lane_that_reads_a_stale_topic() -> None:
    assert told(measurement(), Audit(RECORDS, 0, 3, None)) == [
        "3 results belong to records that this run never sent: a stale topic"
    ]


def test_results_that_are_wrong() -> None:
    assert told(measurement(), Audit(RECORDS, 17, 0, None)) == ["17 results are wrong"]


def test_a_probe_that_was_late_or_never_there() -> None:
    late = arrivals_of(range(RECORDS), ready_ns=START + 2 * NS_PER_S)
    assert told(measurement(late)) == ["the probe was late: 2.0 s into the window"]
    never = arrivals_of(range(RECORDS), ready_ns=None)
    assert told(measurement(never)) == ["the probe never caught up with the topic"]
    at_once = arrivals_of(range(RECORDS), ready_ns=START)
    assert told(measurement(at_once)) == []


def test_a_lane_that_falls_behind() -> None:
    latency = np.linspace(1.0, 1_001.0, RECORDS)
    assert told(measurement(arrivals_of(range(RECORDS), latency.tolist()))) == [
        "the lane fell behind: latency grew by 1,000 ms over the window"
    ]


def test_a_slow_lane_may_waver_more_than_a_fast_one() -> None:
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
    assert told(measurement(), held=2, checks=Checks(boundaries=3)) == [
        "2 batch boundaries in the window, 3 are needed to show what they cost"
    ]
    assert told(measurement(), held=3, checks=Checks(boundaries=3)) == []


def test_where_updates_are_merged_a_record_without_one_is_not_lost() -> None:
    seen = measurement(arrivals_of(range(0, RECORDS, 3)))
    assert told(seen, checks=Checks(merges=True)) == []
    assert told(seen) != []


def test_where_updates_are_merged_there_must_be_one_all_the_same() -> None:
    """A lane that falls silent has lost nothing that was counted on, and has not grown slower either."""
    silent = measurement(arrivals_of([-1]))
    assert told(silent, checks=Checks(merges=True)) == ["no result came out for the records of the window"]


def test_where_the_engine_was_killed_records_come_twice_and_late_and_none_is_lost() -> None:
    latency = [*np.linspace(1.0, 1_001.0, RECORDS), *[500.0] * 900]
    seen = measurement(arrivals_of([*range(RECORDS), *range(900)], latency))
    assert told(seen, checks=Checks(replays=True)) == []
    short = measurement(arrivals_of(range(RECORDS - 1)))
    assert told(short, checks=Checks(replays=True)) == ["1 of 10,000 records never came out"]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    spoilt = measurement(arrivals_of([*range(1, RECORDS), 5], ready_ns=None), load=load_report(failed=1))
    sentences = told(spoilt, Audit(RECORDS, 1, 1, None), checks=Checks(boundaries=1))
    assert len(sentences) == 7
    assert len(set(sentences)) == 7
