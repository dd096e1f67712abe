"""The result of a benchmark: one JSON object, from which every table, picture and sentence is made."""

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from tailrace.measure.run import TOPIC_SETTINGS, CellPlan
from tailrace.measure.traffic.load_worker import PRODUCER
from tailrace.measure.traffic.probe_worker import CONSUMER
from tailrace.version import VERSION

SCHEMA = 1
Run = Mapping[str, Any]
PERCENTILES = ("p50_ms", "p95_ms", "p99_ms", "p999_ms")


def lane_object(cell: CellPlan, runs: Sequence[Run]) -> dict[str, Any]:
    """All runs of a cell in one: the median of each percentile, the greatest maximum, the sums of what is counted."""
    results = [run["result"] for run in runs]
    figures: dict[str, Any] = {}
    spread: dict[str, list[float]] = {}
    for name in PERCENTILES:
        values = [result[name] for result in results if result[name] is not None]
        complete = len(values) == len(results) and values
        figures[name] = round(statistics.median(values), 3) if complete else None
        if complete:
            spread[name] = [min(values), max(values)]
    greatest = [result["max_ms"] for result in results if result["max_ms"] is not None]
    return {
        "lane": cell.lane.name,
        "title": cell.title,
        "work": str(cell.work),
        "rate_per_s": cell.plan.flow.rate_per_s,
        **figures,
        "max_ms": max(greatest) if greatest else None,
        **{name: sum(result[name] for result in results) for name in ("samples", "lost", "duplicated")},
        "merged": sum(run["merged"] for run in runs),
        "runs": len(runs),
        "spread": spread,
        "valid": all(run["valid"] for run in runs),
        "settings": {**cell.lane.settings, **cell.settings},
    }


def ratio(
    slow: Sequence[Mapping[str, Any]], fast: Sequence[Mapping[str, Any]], percentile: str
) -> dict[str, Any] | None:
    """How many times one cell's latency is another's: a ratio for each pair of runs, their median and their spread."""
    pairs = [(one["result"][percentile], other["result"][percentile]) for one, other in zip(slow, fast, strict=False)]
    ratios = [one / other for one, other in pairs if one is not None and other]
    if not ratios or len(ratios) < len(pairs):
        return None
    return {
        "work": slow[0]["work"],
        "rate_per_s": slow[0]["rate_per_s"],
        "slow": slow[0]["key"],
        "fast": fast[0]["key"],
        "percentile": percentile.removesuffix("_ms").replace("p999", "p99.9"),
        "median": round(statistics.median(ratios), 2),
        "low": round(min(ratios), 2),
        "high": round(max(ratios), 2),
        "runs": len(ratios),
    }


def surroundings(versions: Mapping[str, str]) -> dict[str, Any]:
    """What the figures were measured with and on."""
    return {
        "schema": SCHEMA,
        "tool": f"tailrace {VERSION}",
        "clients": {
            "producer": {key: str(value) for key, value in PRODUCER.items()},
            "probe": {key: str(value) for key, value in CONSUMER.items()},
            "topics": dict(TOPIC_SETTINGS),
        },
        "versions": {
            "tailrace": VERSION,
            "python": platform.python_version(),
            "confluent-kafka": version("confluent-kafka"),
            **versions,
        },
        "commit": commit(),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """This machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
    }


def command_line() -> str:
    """The command that makes this result again."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])


def now() -> str:
    """The time, as results write it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def verdict(runs: Iterable[Run], unavailable: Sequence[Mapping[str, Any]]) -> tuple[bool, list[str]]:
    """Whether all of it may be believed, and why not."""
    told = [f"{run['key']}, run {run['run']}: {problem}" for run in runs for problem in run["problems"]]
    missing = [f"{each['lane']} could not be set up: {each['what']}" for each in unavailable]
    return not told, [*told, *missing]


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the checkout that this runs from, if it is one."""
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
