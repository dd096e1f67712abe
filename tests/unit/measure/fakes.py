"""Lanes, measurements and runs, made up: what the benchmark's parts are given where nothing was measured."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tailrace.measure.lane import Announce, Cell, Command, Trigger
from tailrace.measure.measurement import Measurement, Plan
from tailrace.measure.run import CellPlan
from tailrace.measure.schedule import NS_PER_S, Clock
from tailrace.measure.traffic.load import Flow, LoadReport
from tailrace.measure.traffic.probe import Arrivals, ByFields
from tailrace.measure.traffic.records import Events
from tailrace.measure.works import Work
from tailrace.report.result import LaneResult, Run

MS = 1_000_000
START = 1_763_200_000 * NS_PER_S
RATE = 1000.0
SECONDS = 10.0
RECORDS = 10_000
"""Measured records of a made-up measurement, numbered from 0."""


@dataclass(frozen=True)
class FakeLane:
    """A lane that starts nothing unless it is given a command."""

    name: str = "realtime"
    title: str = "real time"
    works: frozenset[Work] = frozenset(Work)
    is_baseline: bool = False
    trigger: Trigger | None = None
    merges: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()
    refuses: Exception | None = None
    prepared: list[str] = field(default_factory=list, compare=False)

    def prepare(self, announce: Announce) -> None:
        self.prepared.append(self.name)
        if self.refuses is not None:
            raise self.refuses

    def versions(self) -> Mapping[str, str]:
        return {"engine of " + self.name: "1.0"}

    def command(self, cell: Cell) -> Command | None:
        return Command((*self.argv, cell.source, cell.sink)) if self.argv else None


def cell_of(lane: FakeLane, *, work: Work = Work.STATELESS, rate: float = RATE, key: str = "", **more: Any) -> CellPlan:
    plan = Plan(Flow(Events(128), rate), SECONDS, 1.0, ByFields("id", "sent_ns"))
    return CellPlan(lane, work, plan, 300.0, 500, key or lane.name, lane.title, **more)


def arrivals_of(
    numbers: Sequence[int], latency_ms: float | Sequence[float] = 1.0, *, ready_ns: int | None = START - NS_PER_S
) -> Arrivals:
    """Results of records that were due at a constant rate, in the order of their receipt."""
    number = np.array(numbers, dtype=np.int64)
    sent = START + number * round(NS_PER_S / RATE)
    received = sent + (np.broadcast_to(np.asarray(latency_ms, dtype=float), number.shape) * MS).astype(np.int64)
    order = np.argsort(received, kind="stable")
    return Arrivals(number[order], sent[order], received[order], ready_ns)


def load_report(**changed: Any) -> LoadReport:
    kept = {
        "sent": RECORDS,
        "failed": 0,
        "measured": RECORDS,
        "took_s": SECONDS - 1 / RATE,
        "late_ms_p50": 0.05,
        "late_ms_p99": 0.4,
        "late_ms_max": 3.0,
    }
    return LoadReport(**{**kept, **changed})


def measurement(arrivals: Arrivals | None = None, *, load: LoadReport | None = None, **changed: Any) -> Measurement:
    """Ten thousand records in ten seconds, each a millisecond on its way, unless told otherwise."""
    seen = {
        "first": 0,
        "end": RECORDS,
        "first_ns": START,
        "end_ns": START + round(SECONDS * NS_PER_S),
        "began_ns": START - 5 * NS_PER_S,
        "arrivals": arrivals if arrivals is not None else arrivals_of(range(RECORDS)),
        "load": load or load_report(),
        "clock": Clock(0, lambda: START),
    }
    return Measurement(**{**seen, **changed})


def run_line(cell: CellPlan, p50_ms: float | None = 1.0, **changed: Any) -> Run:
    """A run of a cell as the result has it, before it is numbered."""
    figures = (None,) * 5 if p50_ms is None else tuple(p50_ms * factor for factor in (1, 2, 3, 4, 5))
    run = Run(
        key=cell.key,
        lane=cell.lane.name,
        work=str(cell.work),
        rate_per_s=cell.plan.flow.rate_per_s,
        result=LaneResult(*figures, samples=100),
    )
    return replace(run, **{name: tuple(value) if isinstance(value, list) else value for name, value in changed.items()})
