"""``tailrace bench gap``: what a checkpoint costs in real time, and what its interval buys after a crash.

For each interval two runs: one that shows the pause at every boundary and where its time goes, and one in which the
engine is killed and started again, so that the records since the last checkpoint come out a second time.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tailrace.bench.lane import Lane
from tailrace.bench.options import BOUNDARIES_NEEDED, BenchOptions
from tailrace.bench.registry import lanes_named
from tailrace.bench.result import Run
from tailrace.bench.run import CellPlan
from tailrace.bench.study import Study
from tailrace.bench.work import Work

INTERVALS_S = (5, 10, 30)
WORKS = (Work.STATELESS, Work.AGGREGATE)
_RECOVERY_S = 60.0
"""How long a killed engine may take until everything has come out."""


def gap_study(
    options: BenchOptions,
    intervals_s: Sequence[int] = INTERVALS_S,
    works: Sequence[Work] = WORKS,
    *,
    kills: bool = True,
) -> Study:
    """Real time at each checkpoint interval, with and without state."""
    (lane,) = lanes_named(["realtime"])
    cells = []
    for work in works:
        for interval in intervals_s:
            cells.append(_pause_cell(options, lane, work, interval))
            if kills:
                cells.append(_kill_cell(options, lane, work, interval))

    def add(result: dict[str, Any]) -> dict[str, Any]:
        found = [_row(result["runs"], work, interval) for work in works for interval in intervals_s]
        return {"gap": {"intervals": [row for row in found if row is not None]}}

    settings = {**options.as_settings(), "intervals_s": list(intervals_s), "works": [str(work) for work in works]}
    return Study(
        "gap",
        cells,
        options.runs,
        settings,
        notes=[
            "A pause is the longest time around a boundary in which no record reached the consumer.",
            "Without state Spark writes its logs beside the next batch, so those writes are not part of the pause.",
        ],
        add=add,
    )


def _pause_cell(options: BenchOptions, lane: Lane, work: Work, interval_s: int) -> CellPlan:
    here = replace(
        options,
        checkpoint_every=f"{interval_s}s",
        seconds=max(options.seconds, interval_s * (BOUNDARIES_NEEDED + 0.5)),
        boundaries=BOUNDARIES_NEEDED,
    )
    made = here.cell(lane, work=work, key=_key(work, interval_s))
    return replace(made, title=f"{work}, every {interval_s} s", settings={"checkpoint every": f"{interval_s} s"})


def _kill_cell(options: BenchOptions, lane: Lane, work: Work, interval_s: int) -> CellPlan:
    """Killed when the warm-up is over and most of an interval more has gone by."""
    after_s = options.warmup + 0.9 * interval_s
    here = replace(options, checkpoint_every=f"{interval_s}s", seconds=interval_s + 10.0, boundaries=0)
    made = here.cell(lane, work=work, key=f"{_key(work, interval_s)} killed")
    return replace(
        made,
        title=f"{work}, every {interval_s} s, killed",
        settings={"checkpoint every": f"{interval_s} s", "killed": f"{after_s:g} s after the first result"},
        plan=replace(made.plan, drain_s=_RECOVERY_S),
        kill_after_s=after_s,
    )


def _key(work: Work, interval_s: int) -> str:
    return f"realtime {work} {interval_s}s"


def _row(runs: Sequence[Run], work: Work, interval_s: int) -> dict[str, Any] | None:
    key = _key(work, interval_s)
    here = [run for run in runs if run["key"] == key]
    held = [boundary for run in here for boundary in run["boundaries"]]
    pauses = [boundary["pause_ms"] for boundary in held if boundary["pause_ms"] is not None]
    if not pauses:
        return None
    names = dict.fromkeys(name for boundary in held for name in boundary["parts_ms"])
    parts = {
        name: statistics.median(each["parts_ms"][name] for each in held if name in each["parts_ms"]) for name in names
    }
    kills = [run["kill"] for run in runs if run["key"] == f"{key} killed" and run["kill"] is not None]
    replayed = [kill["replayed"] for kill in kills]
    silent = [kill["silent_s"] for kill in kills if kill["silent_s"] is not None]
    median = statistics.median(pauses)
    return {
        "work": str(work),
        "checkpoint_every_s": interval_s,
        "key": key,
        "pauses_ms": pauses,
        "parts_ms": parts,
        "overhead_percent": round(median / (interval_s * 10), 2),
        "replay_records": statistics.median(replayed) if replayed else None,
        "replay_bound_records": round(here[0]["rate_per_s"] * interval_s),
        "recovery_s": statistics.median(silent) if silent else None,
    }
