"""``tailrace bench engines``: other engines at the same work, on the same broker, in the same run."""

import os
from collections.abc import Sequence
from dataclasses import replace

from tailrace.bench.options import BenchOptions, caveats
from tailrace.bench.registry import all_lanes, lanes_named
from tailrace.bench.result import Run
from tailrace.bench.run import LATER_WARMUP_S, CellPlan
from tailrace.bench.study import Study
from tailrace.bench.verdict import BEHIND, LATE_LOAD
from tailrace.bench.work import Work

WORKS = (Work.STATELESS, Work.AGGREGATE, Work.PYTHON)
RATES = (200.0, 2000.0, 8000.0)
_FAIRNESS = (
    "Every engine gets the same producer and consumer settings, partitions and parallelism. The default lanes keep "
    "everything else as the engine comes; the tuned ones are set as its own documentation advises."
)
_IN_TURN = (
    f"An engine meets the rates from the lowest to the highest in one life, each with a load of its own and "
    f"{LATER_WARMUP_S:g} s that do not count after a change. An engine that fell behind at one rate begins the next "
    "one behind."
)
HELD_S = 30.0
"""How long Kafka Streams holds an aggregate back, unless told otherwise: until its next commit."""
SATURATED = 0.9
"""The part of all cores in use from which on a late load is the lane's doing."""
NOT_HERE = ("microbatch", "microbatch-stock", "continuous", "realtime-timer", "realtime-builtin")


def engines_study(
    options: BenchOptions,
    works: Sequence[Work] = WORKS,
    rates: Sequence[float] = RATES,
    names: Sequence[str] = (),
) -> Study:
    """Every lane that can do a work, at every rate, from the lowest to the highest in one life of its engine."""
    chosen = lanes_named(names) if names else [lane for name, lane in all_lanes().items() if name not in NOT_HERE]
    cells = [
        _patient(options.cell(lane, work=work, rate=rate, key=f"{lane.name} {work} {rate:g}"))
        for work in works
        for lane in chosen
        for rate in sorted(rates)
        if work in lane.works and not (lane.name == "floor" and work is not Work.STATELESS)
    ]
    settings = {**options.as_settings(), "works": [str(work) for work in works], "rates_per_s": list(rates)}
    return Study(
        "engines",
        cells,
        options.runs,
        settings,
        notes=[_FAIRNESS, _IN_TURN, *caveats(options)],
        tolerates=is_finding,
        references=("realtime", "python-five"),
        shares_engines=True,
    )


def is_finding(run: Run) -> bool:
    """Whether a run is void because its lane cannot keep up, or leaves the load no processor to keep to its plan with.

    Whatever else is wrong with it is a fault.
    """
    used = sum(each["cpu_cores"] for each in run["resources"].values())
    is_saturated = used >= SATURATED * (os.cpu_count() or 1)
    return bool(run["problems"]) and all(
        problem.startswith(BEHIND) or (is_saturated and problem.startswith(LATE_LOAD)) for problem in run["problems"]
    )


def _patient(cell: CellPlan) -> CellPlan:
    """Where results are held back for half a minute, as long a window, and as long a wait for the last of them."""
    if not cell.merges:
        return cell
    return replace(cell, plan=replace(cell.plan, seconds=max(cell.plan.seconds, HELD_S), held_s=HELD_S))
