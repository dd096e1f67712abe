"""Decide whether a run is valid, by the rules of the method."""

from dataclasses import dataclass

from tailrace.errors import counted
from tailrace.measure.audit import Audit
from tailrace.measure.measurement import Measurement
from tailrace.report.result import LaneResult, Reason

SLOWEST_RATE = 0.99
"""The part of the planned rate that the load must reach."""
LATEST_MS = 25.0
"""The largest p99 of the publish delay. The delay counts as latency, so it never improves a figure."""
GROWTH_MS = 20.0
"""Latency may grow by this much over the window before a lane counts as falling behind."""


@dataclass(frozen=True)
class Problem:
    """A reason why a run is void, and a sentence about it."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class Checks:
    """The rules that differ from run to run."""

    merges: bool = False
    """Whether one result may stand for several records."""
    boundaries: int = 0
    """The least number of batch boundaries in the window."""
    replays: bool = False
    """Whether the engine is killed in the window, so that records come out twice and late."""
    held_s: float = 0.0
    """How long the engine holds results by its own settings."""


def problems(
    window: Measurement, result: LaneResult, audited: Audit, growth_ms_per_s: float, boundaries: int, checks: Checks
) -> list[Problem]:
    """Return why the run is void; nothing if it is valid."""
    reported = [*_load_problems(window), *_probe_problems(window), *_record_problems(result, audited, checks)]
    if fell_behind(window, result, growth_ms_per_s, checks) and not checks.replays:
        grown = _grown_ms(window, growth_ms_per_s)
        text = f"the lane fell behind: latency grew by {grown:,.0f} ms over the window"
        reported.append(Problem(Reason.FELL_BEHIND, text))
    if boundaries < checks.boundaries:
        text = f"{boundaries} batch boundaries in the window, {checks.boundaries} are needed to show what they cost"
        reported.append(Problem(Reason.TOO_FEW_BOUNDARIES, text))
    return reported


def fell_behind(window: Measurement, result: LaneResult, growth_ms_per_s: float, checks: Checks) -> bool:
    """Return whether latency grew over the window by more than chance and the engine's own waits explain."""
    return _grown_ms(window, growth_ms_per_s) > max(GROWTH_MS, 1000 * checks.held_s, 2 * (result.p50_ms or 0.0) / 3)


def _grown_ms(window: Measurement, growth_ms_per_s: float) -> float:
    return growth_ms_per_s * (window.end_ns - window.first_ns) / 1e9


def _load_problems(window: Measurement) -> list[Problem]:
    load, planned = window.load, window.end - window.first
    if load.failed:
        return [Problem(Reason.UNSENT_RECORDS, f"{counted(load.failed, 'record')} could not be sent")]
    seconds = (window.end_ns - window.first_ns) / 1e9
    if load.measured < planned or load.took_s > seconds / SLOWEST_RATE:
        rate = load.measured / max(load.took_s, seconds)
        text = f"the load missed its plan: {rate:,.0f} records/s instead of {planned / seconds:,.0f}"
        return [Problem(Reason.LATE_LOAD, text)]
    if load.late_ms_p99 > LATEST_MS:
        text = f"the load missed its plan: one record in a hundred was more than {load.late_ms_p99:.0f} ms late"
        return [Problem(Reason.LATE_LOAD, text)]
    return []


def _probe_problems(window: Measurement) -> list[Problem]:
    ready_ns = window.arrivals.ready_ns
    if ready_ns is None:
        return [Problem(Reason.LATE_PROBE, "the probe never caught up with the topic")]
    if ready_ns > window.first_ns:
        text = f"the probe was late: {(ready_ns - window.first_ns) / 1e9:.1f} s into the window"
        return [Problem(Reason.LATE_PROBE, text)]
    return []


def _record_problems(result: LaneResult, audited: Audit, checks: Checks) -> list[Problem]:
    texts = {}
    if checks.merges and not result.samples:
        texts[Reason.NO_OUTPUT] = "no result came out for the records of the window"
    if result.lost and not checks.merges:
        texts[Reason.LOST_RECORDS] = f"{result.lost:,} of {result.samples + result.lost:,} records never came out"
    if result.duplicated and not checks.replays:
        texts[Reason.REPEATED_RECORDS] = f"{counted(result.duplicated, 'record')} came out more than once"
    if audited.foreign:
        text = f"{audited.foreign:,} results belong to records that this run never sent"
        texts[Reason.STALE_TOPIC] = f"{text}: a stale topic"
    if audited.wrong:
        texts[Reason.WRONG_RESULTS] = f"{audited.wrong:,} results are wrong"
    return [Problem(reason, text) for reason, text in texts.items()]
