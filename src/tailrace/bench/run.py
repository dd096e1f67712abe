"""One run of one lane, from fresh topics to a line of the result."""

import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.bench.audit import audit
from tailrace.bench.boundaries import boundaries, read_progress
from tailrace.bench.lane import Cell, Lane
from tailrace.bench.measure import Measurement, NoEngine, Plan, Show, measure
from tailrace.bench.process import LaneProcess
from tailrace.bench.verdict import Checks, problems
from tailrace.bench.work import Work
from tailrace.kafka.topics import ClientConfig, create_topic
from tailrace.latency.distribution import growth_ms_per_s, hdr_histogram, percentile_curve, timeline
from tailrace.latency.lane import LaneResult, lane_result
from tailrace.traffic.arrivals import Arrivals

TOPIC_SETTINGS = {"message.timestamp.type": "LogAppendTime"}
"""The broker's own clock in both topics, so that the spans before and after the engine can be told apart."""


@dataclass(frozen=True)
class Bench:
    """Where runs happen.

    Attributes:
        bootstrap_servers: The broker.
        client: Settings of our own clients of it.
        partitions: Of every topic.
        scratch: A folder for what runs leave behind; it goes with the benchmark.
        broker_pid: The broker's process, where it is ours.
    """

    bootstrap_servers: str
    client: ClientConfig
    partitions: int
    scratch: Path
    broker_pid: int | None = None

    def topic(self, name: str) -> str:
        """Make a fresh topic."""
        unique = f"bench-{name}-{secrets.token_hex(4)}"
        create_topic(self.client, unique, self.partitions, TOPIC_SETTINGS)
        return unique

    def folder(self, name: str) -> Path:
        """Make a fresh folder."""
        made = self.scratch / f"{name}-{secrets.token_hex(4)}"
        made.mkdir(parents=True)
        return made


@dataclass(frozen=True)
class CellPlan:
    """One cell of a study: a lane, its work, and how it is measured."""

    lane: Lane
    work: Work
    plan: Plan
    checkpoint_every_s: float
    trigger_every_ms: int
    key: str
    title: str
    settings: Mapping[str, str] = field(default_factory=dict)
    needs_boundaries: int = 0

    @property
    def merges(self) -> bool:
        """Whether this lane gives one result where another gives many."""
        return self.work.merges and self.lane.merges


def run_cell(bench: Bench, cell: CellPlan, show: Show) -> dict[str, Any]:
    """Run it once; return what the result says about this run, without its number."""
    source = bench.topic(f"{cell.lane.name}-in")
    folder = bench.folder(cell.lane.name)
    given = Cell(
        cell.work,
        bench.bootstrap_servers,
        source,
        source,
        bench.partitions,
        folder,
        cell.checkpoint_every_s,
        cell.trigger_every_ms,
    )
    processes = {"broker": bench.broker_pid} if bench.broker_pid is not None else {}
    try:
        if (command := cell.lane.command(given)) is None:
            seen = measure(cell.plan, bench.client, (source, source), NoEngine(), show, processes=processes)
        else:
            given = replace(given, sink=bench.topic(f"{cell.lane.name}-out"))
            command = cell.lane.command(given) or command
            with LaneProcess(cell.lane.name, command, folder / "lane.log") as process:
                processes = {"engine": process.pid, **processes}
                topics = (source, given.sink)
                seen = measure(cell.plan, bench.client, topics, process, show, processes=processes, merges=cell.merges)
        return _line(bench, cell, given, seen)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _line(bench: Bench, cell: CellPlan, given: Cell, seen: Measurement) -> dict[str, Any]:
    measured = seen.arrivals.within(seen.first, seen.end)
    firsts = measured.firsts()
    result = _result(seen, measured, firsts, merges=cell.merges)
    growth = growth_ms_per_s(firsts.sent_ns, firsts.latency_ns)
    found = audit(cell.work, bench.client, given.source, given.sink, seen)
    held = boundaries(read_progress(given.events), seen.arrivals.received_ns, seen.first_ns, seen.end_ns)
    checks = Checks(cell.merges, cell.needs_boundaries)
    told = problems(seen, result, found, growth, len(held), checks)
    return {
        "key": cell.key,
        "lane": cell.lane.name,
        "work": str(cell.work),
        "rate_per_s": cell.plan.flow.rate_per_s,
        "result": result.as_json(),
        "merged": seen.end - seen.first - len(firsts) if cell.merges else 0,
        **figures(seen, firsts, growth),
        "spans_ms": found.spans_ms,
        "boundaries": held,
        "output_checked": found.checked,
        "output_wrong": found.wrong,
        "valid": not told,
        "problems": told,
    }


def figures(seen: Measurement, firsts: Arrivals, growth: float) -> dict[str, Any]:
    """What every run tells besides its percentiles."""
    latency_ns = firsts.latency_ns
    seconds = (seen.end_ns - seen.first_ns) / 1e9
    return {
        "mean_ms": round(float(latency_ns.mean()) / 1e6, 3) if len(latency_ns) else None,
        "publish_delay_ms": {
            "p50": round(seen.load.late_ms_p50, 3),
            "p99": round(seen.load.late_ms_p99, 3),
            "max": round(seen.load.late_ms_max, 3),
        },
        "achieved_rate_per_s": round(seen.load.measured / max(seen.load.took_s, 1e-9), 1),
        "percentiles": percentile_curve(latency_ns),
        "timeline": timeline(firsts.sent_ns, latency_ns, seen.first_ns, seconds),
        "resources": {name: dict(used) for name, used in seen.resources.items()},
        "first_output_s": seen.first_output_s,
        "lag_per_s": growth,
        "histogram": hdr_histogram(latency_ns),
    }


def _result(seen: Measurement, measured: Arrivals, firsts: Arrivals, *, merges: bool) -> LaneResult:
    expected = len(firsts) if merges else seen.end - seen.first
    return lane_result(firsts.latency_ns, expected=expected, duplicated=len(measured) - len(firsts))
