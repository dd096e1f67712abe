import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tailrace.measure.boundaries import batch_end_ns, boundaries, parts_ms, pause_ms, read_progress
from tailrace.measure.schedule import NS_PER_S

from .fakes import MS, START

Nanoseconds = NDArray[np.int64]


def received(*pauses: tuple[float, float], seconds: float = 30.0) -> Nanoseconds:
    """A record each millisecond, save in the pauses: from a second on, for so many seconds."""
    at = np.arange(0, seconds, 0.001)
    for begin, length in pauses:
        at = at[(at <= begin) | (at >= begin + length)]
    return START + np.round(at * NS_PER_S).astype(np.int64)


def batch(number: int, start_s: float, took_s: float = 10.0, **more: Any) -> dict[str, Any]:
    began = datetime.fromtimestamp(START / NS_PER_S + start_s, UTC)
    text = began.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    durations = {
        "triggerExecution": round(took_s * 1000),
        "latestOffset": 3,
        "getBatch": 1,
        "queryPlanning": 19,
        "walCommit": 12,
        "commitOffsets": 8,
    }
    return {"batchId": number, "timestamp": text, "durationMs": durations, **more}


def at_ns(seconds: float) -> int:
    return START + round(seconds * NS_PER_S)


def test_a_batch_ends_when_its_trigger_was_executed() -> None:
    assert batch_end_ns(batch(0, 2.5, 10.25)) == pytest.approx(at_ns(12.75), abs=MS)


def test_the_pause_at_a_boundary_is_found() -> None:
    assert pause_ms(received((10.0, 0.13)), at_ns(10.0)) == pytest.approx(130, abs=1.1)
    assert pause_ms(received((9.9, 0.25)), at_ns(10.0)) == pytest.approx(250, abs=1.1)


def test_a_pause_elsewhere_belongs_to_no_boundary() -> None:
    assert pause_ms(received((20.0, 0.8)), at_ns(10.0)) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("length_s", [2.5, 4.0, 9.0])
def test_a_pause_longer_than_the_time_around_a_boundary_counts_in_full(length_s: float) -> None:
    for begin in (9.9, 10.1 - length_s):
        assert pause_ms(received((begin, length_s)), at_ns(10.0)) == pytest.approx(1000 * length_s, abs=1.1)


def test_without_records_on_both_sides_there_is_no_pause() -> None:
    assert pause_ms(np.array([], dtype=np.int64), at_ns(1)) is None
    assert pause_ms(np.array([at_ns(1)], dtype=np.int64), at_ns(1)) is None


def test_the_boundaries_of_a_window_are_those_within_it() -> None:
    progress = [batch(number, 10.0 * number - 5) for number in range(5)]
    shuffled = np.random.default_rng(5).permutation(received((15.0, 0.2), (25.0, 0.4), seconds=40))
    found = boundaries(progress, shuffled, at_ns(10), at_ns(30))
    assert [(each.at_s, each.batch) for each in found] == [(5.0, 1), (15.0, 2)]
    assert [each.pause_ms for each in found] == pytest.approx([200, 400], abs=1.1)


def test_a_boundary_on_the_edge_belongs_to_the_window_that_begins_there() -> None:
    progress = [batch(0, 0.0)]
    assert len(boundaries(progress, received(), batch_end_ns(progress[0]), at_ns(30))) == 1
    assert boundaries(progress, received(), at_ns(0), batch_end_ns(progress[0])) == []


def test_parts_are_of_the_end_of_one_batch_and_the_start_of_the_next() -> None:
    one = batch(0, 0.0, tasks={"last_start": 0, "first_end": 1_000, "last_end": 1_040})
    one["tasks"] |= {"first_end": START // MS + 9_900, "last_end": START // MS + 9_950}
    other = batch(1, 10.0, tasks={"last_start": START // MS + 10_060, "first_end": 0, "last_end": 0})
    assert parts_ms(one, other) == {
        "log writes": 20.0,
        "tasks end, first to last": 50.0,
        "offsets": 4.0,
        "planning": 19.0,
        "task start": 37.0,
        "driver between batches": 30.0,
    }


def test_parts_without_what_only_our_engine_knows() -> None:
    assert parts_ms(batch(0, 0), batch(1, 10)) == {"log writes": 20.0, "offsets": 4.0, "planning": 19.0}
    assert parts_ms(batch(0, 0, tasks=None), None) == {"log writes": 20.0}, "the next batch is not over yet"


def test_parts_of_state_are_those_of_its_slowest_operator() -> None:
    state = [
        {"commitTimeMs": 40, "customMetrics": {"rocksdbLoadLatencyMs": 5}},
        {"commitTimeMs": 70},
    ]
    parts = parts_ms(batch(0, 0, stateOperators=state), batch(1, 10, stateOperators=state))
    assert (parts["state commit"], parts["state load"]) == (70.0, 5.0)


def test_figures_that_spark_did_not_give_are_nothing() -> None:
    bare = {"batchId": 0, "timestamp": "2025-11-15T10:00:00.000Z", "durationMs": {}}
    assert parts_ms(bare, bare) == {"log writes": 0.0, "offsets": 0.0, "planning": 0.0}


def test_progress_is_read_up_to_a_line_that_is_half_written(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert read_progress(file) == [], "a lane that has none"
    file.write_text("")
    assert read_progress(file) == []
    whole = json.dumps(batch(0, 0)) + "\n" + json.dumps(batch(1, 10)) + "\n"
    for half in ("", "{", '{"batchId": 2, "durationMs": {"walCommit": 3}', json.dumps(batch(2, 20))[:-1]):
        file.write_text(whole + half)
        assert [each["batchId"] for each in read_progress(file)] == [0, 1]
