"""``tailrace bench rates``: the highest rate that a lane sustains with its 99th percentile below a bound."""

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace.bench.options import BenchOptions, caveats
from tailrace.bench.registry import lanes_named
from tailrace.bench.result import Run
from tailrace.bench.run import CellPlan
from tailrace.bench.study import Study

LADDER = (10.0, 100.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 12000.0, 16000.0, 24000.0)
BOUND_MS = 100.0


def rates_study(options: BenchOptions, ladder: Sequence[float] = LADDER, bound_ms: float = BOUND_MS) -> Study:
    """Each lane up the ladder, until it cannot keep up."""
    lanes = [lane for lane in lanes_named(options.lanes) if lane.name != "floor"]
    rungs = sorted(ladder)
    cells = [options.cell(lane, rate=rate, key=f"{lane.name} {rate:g}/s") for rate in rungs for lane in lanes]

    def skips(cell: CellPlan, runs: Sequence[Run]) -> str:
        failed = [run for run in runs if run["lane"] == cell.lane.name and why_not(run, bound_ms)]
        slower = [run["rate_per_s"] for run in failed if run["rate_per_s"] < cell.plan.flow.rate_per_s]
        return f"{min(slower):,.0f}/s was too much already" if slower else ""

    def add(result: dict[str, Any]) -> dict[str, Any]:
        lanes_found = {lane.name: _ladder(lane.name, result["runs"], bound_ms) for lane in lanes}
        return {"rates": {"bound_ms": bound_ms, "lanes": lanes_found}}

    return Study(
        "rates",
        cells,
        options.runs,
        {**options.as_settings(), "ladder_per_s": list(rungs), "bound_ms": bound_ms},
        notes=[
            *caveats(options),
            f"Sustained: p99 below {bound_ms:g} ms, nothing lost, and no latency that grows over the window.",
        ],
        add=add,
        skips=skips,
        tolerates=lambda run: bool(run["problems"]),  # each rung says why it was not reached
    )


def why_not(run: Run, bound_ms: float) -> str:
    """Why a run shows that its rate is not sustained; nothing where it is."""
    if run["problems"]:
        return str(run["problems"][0])
    p99 = run["result"]["p99_ms"]
    # At a very low rate there are too few records for a 99th percentile: the longest wait is then the bound's.
    worst = p99 if p99 is not None else run["result"]["max_ms"]
    if worst is None or worst > bound_ms:
        return f"p99 {worst} ms" if worst is not None else "nothing came out"
    return ""


def _ladder(lane: str, runs: Sequence[Run], bound_ms: float) -> Mapping[str, Any]:
    rungs: dict[float, list[Run]] = {}
    for run in runs:
        if run["lane"] == lane:
            rungs.setdefault(run["rate_per_s"], []).append(run)
    ladder = []
    for rate, here in sorted(rungs.items()):
        why = next((found for run in here if (found := why_not(run, bound_ms))), "")
        ladder.append({"rate_per_s": rate, "key": here[0]["key"], "sustained": not why, "why": why})
    sustained = [rung["rate_per_s"] for rung in ladder if rung["sustained"]]
    return {"highest_per_s": max(sustained) if sustained else None, "ladder": ladder}
