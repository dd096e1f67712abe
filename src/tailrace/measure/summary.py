"""From the runs of a study to its result: summaries, ratios, the verdict and the surroundings."""

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from tailrace.measure.run import TOPIC_SETTINGS, CellPlan
from tailrace.measure.traffic.load import PRODUCER
from tailrace.measure.traffic.probe import CONSUMER
from tailrace.report.result import PERCENTILES, SCHEMA, LaneSummary, Machine, Ratio, Result, Run, Unavailable
from tailrace.version import VERSION


def summary(cell: CellPlan, runs: Sequence[Run]) -> LaneSummary:
    """Summarise all runs of a cell: the median of each percentile, the largest maximum, the sums of all counts."""
    results = [run.result for run in runs]
    figures: dict[str, float | None] = {}
    spread: dict[str, tuple[float, float]] = {}
    for percentile, name in PERCENTILES.items():
        values = [value for result in results if (value := result.percentile(percentile)) is not None]
        complete = values and len(values) == len(results)
        figures[name] = round(statistics.median(values), 3) if complete else None
        if complete:
            spread[name] = (min(values), max(values))
    return LaneSummary(
        lane=cell.lane.name,
        title=cell.title,
        work=str(cell.work),
        rate_per_s=cell.plan.flow.rate_per_s,
        **figures,
        max_ms=max((result.max_ms for result in results if result.max_ms is not None), default=None),
        samples=sum(result.samples for result in results),
        lost=sum(result.lost for result in results),
        duplicated=sum(result.duplicated for result in results),
        merged=sum(run.merged for run in runs),
        runs=len(runs),
        spread=spread,
        valid=all(run.valid for run in runs),
        settings={**cell.lane.settings, **cell.settings},
    )


def ratio(slow: Sequence[Run], fast: Sequence[Run], percentile: str) -> Ratio | None:
    """Divide the latency of one cell by that of another: a ratio for each pair of runs, their median and spread."""
    pairs = [
        (one.result.percentile(percentile), other.result.percentile(percentile))
        for one, other in zip(slow, fast, strict=False)
    ]
    ratios = [one / other for one, other in pairs if one is not None and other]
    if not ratios or len(ratios) < len(pairs):
        return None
    return Ratio(
        work=slow[0].work,
        rate_per_s=slow[0].rate_per_s,
        slow=slow[0].key,
        fast=fast[0].key,
        percentile=percentile,
        median=round(statistics.median(ratios), 2),
        low=round(min(ratios), 2),
        high=round(max(ratios), 2),
        runs=len(ratios),
    )


def with_surroundings(result: Result, versions: Mapping[str, str]) -> Result:
    """Add what the figures were measured with and on."""
    return replace(
        result,
        schema=SCHEMA,
        tool=f"tailrace {VERSION}",
        clients={
            "producer": {key: str(value) for key, value in PRODUCER.items()},
            "probe": {key: str(value) for key, value in CONSUMER.items()},
            "topics": dict(TOPIC_SETTINGS),
        },
        versions={
            "tailrace": VERSION,
            "python": platform.python_version(),
            "confluent-kafka": version("confluent-kafka"),
            **versions,
        },
        commit=commit(),
        machine=machine(),
    )


def machine() -> Machine:
    """Describe this machine."""
    memory = round(psutil.virtual_memory().total / 2**30, 1)
    return Machine(_cpu_model(), os.cpu_count(), memory, platform.platform())


def command_line() -> str:
    """Return the command that measures this result again."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def now() -> str:
    """Return the time in the format of a result."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def verdict(runs: Iterable[Run], unavailable: Sequence[Unavailable]) -> tuple[bool, tuple[str, ...]]:
    """Return whether all runs are valid, and the sentences that say why not."""
    void = [f"{run.key}, run {run.run}: {problem}" for run in runs for problem in run.problems]
    missing = [f"{each.lane} could not be set up: {each.what}" for each in unavailable]
    return not void, (*void, *missing)


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of the checkout that this runs from, or None outside of one."""
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None
