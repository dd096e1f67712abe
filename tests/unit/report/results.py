"""Made-up results of every study, complete and of realistic shape: what the report is tested and looked at with."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]

PERCENTS = (50.0, 62.5, 75.0, 81.25, 87.5, 90.0, 92.5, 95.0, 96.5, 97.5, 98.5, 99.0, 99.25, 99.5, 99.7, 99.8, 99.9,
            99.95, 99.97, 99.98, 99.99, 99.995)  # fmt: skip
PARTS = {"offsets": 9.0, "planning": 31.0, "task start": 22.0, "state": 0.0, "log writes": 48.0}
PROCESSES = {"engine": (0.42, 812), "broker": (0.21, 640), "load": (0.12, 74), "probe": (0.1, 81)}


@dataclass(frozen=True)
class Made:
    """How the latency of a made-up lane comes about."""

    lane: str
    title: str
    typical_ms: float
    width: float = 0.35
    """Of the lognormal noise."""
    every_s: float | None = None
    """A batch boundary so often."""
    pause_ms: float = 0.0
    waits: bool = False
    """A record waits for the next boundary, as in micro-batch."""


FLOOR = Made("floor", "Kafka alone", 0.31)
MICROBATCH = Made("microbatch", "micro-batch, every 500 ms", 96, 0.18, every_s=0.5, waits=True)
REALTIME = Made("realtime", "real time", 0.71, 0.4, every_s=20.0, pause_ms=130)


def _latencies(shape: Made, times: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    values: NDArray[Any] = shape.typical_ms * np.exp(random.normal(0, shape.width, len(times)))
    # Now and then something stands still for a moment: that is what the tail is made of.
    for start in random.uniform(0, times[-1], 9):
        behind = times - start
        hit = (behind >= 0) & (behind < 0.02)
        values[hit] += 20 * (1 - behind[hit] / 0.02) * random.uniform(0.2, 1)
    if shape.every_s and shape.waits:
        values += 1000 * (shape.every_s - times % shape.every_s)
    elif shape.every_s:
        left = shape.pause_ms - 1000 * ((times + 8) % shape.every_s)
        values += np.clip(left, 0, None)
    return values


def _steps(times: NDArray[Any], values: NDArray[Any], step_s: float, until: float) -> Json:
    steps = np.split(values, np.searchsorted(times, np.arange(step_s, until, step_s)))

    def each(figure: Callable[[NDArray[Any]], Any], least: int) -> list[float | None]:
        return [round(float(figure(step)), 3) if len(step) >= least else None for step in steps]

    return {
        "step_s": step_s,
        "start_s": 0.0,
        "p50_ms": each(np.median, 20),
        "p99_ms": each(lambda step: np.percentile(step, 99), 100),
        "max_ms": each(np.max, 1),
        "count": [len(step) for step in steps],
    }


def _boundaries(shape: Made, until: float, random: np.random.Generator) -> list[Json]:
    if not shape.every_s:
        return []
    first = shape.every_s - (0 if shape.waits else 8)
    boundaries = []
    for batch, at in enumerate(np.arange(first, until, shape.every_s), start=2):
        boundary: Json = {"at_s": round(float(at), 3), "batch": batch}
        if shape.pause_ms:
            factor = shape.pause_ms / sum(PARTS.values()) * random.uniform(0.9, 1.1)
            boundary["parts_ms"] = {name: round(part * factor, 1) for name, part in PARTS.items()}
            boundary["pause_ms"] = round(sum(boundary["parts_ms"].values()), 1)
        boundaries.append(boundary)
    return boundaries


def made_run(shape: Made, key: str, work: str, rate: float, number: int, until: float = 60.0) -> Json:
    """One run of a lane."""
    random = np.random.default_rng([number, len(key), int(shape.typical_ms * 1000), int(rate)])
    times = np.arange(0, until, 1 / min(rate, 2000))
    values = _latencies(shape, times, random) * random.uniform(0.95, 1.06)
    count = len(values)

    def percentile(percent: float) -> float | None:
        beyond = count * (1 - percent / 100)
        return round(float(np.percentile(values, percent)), 3) if beyond >= 10 else None

    engine = {} if shape.lane == "floor" else {"engine": PROCESSES["engine"]}
    used = engine | {name: used for name, used in PROCESSES.items() if name != "engine"}
    return {
        "key": key,
        "lane": shape.lane,
        "work": work,
        "rate_per_s": rate,
        "run": number,
        "order": number,
        "result": {
            "p50_ms": percentile(50),
            "p95_ms": percentile(95),
            "p99_ms": percentile(99),
            "p999_ms": percentile(99.9),
            "max_ms": round(float(values.max()), 3),
            "samples": count,
            "lost": 0,
            "duplicated": 0,
        },
        "mean_ms": round(float(values.mean()), 3),
        "publish_delay_ms": {"p50": 0.03, "p99": 0.4, "max": 3.1 + number},
        "achieved_rate_per_s": rate - 0.3 * number,
        "spans_ms": {
            "intended to broker": {"p50": 0, "p95": 1, "p99": 2},
            "broker to sink": {"p50": round(shape.typical_ms), "p95": round(3 * shape.typical_ms), "p99": 9},
            "sink to receipt": {"p50": 1, "p95": 1, "p99": 2},
        },
        "percentiles": [[each, value] for each in PERCENTS if (value := percentile(each)) is not None],
        "timeline": _steps(times, values, 0.5, until),
        "boundaries": _boundaries(shape, until, random),
        "resources": {name: {"cpu_cores": cores, "rss_mb": memory} for name, (cores, memory) in used.items()},
        "first_output_s": 9.4,
        "output_checked": count,
        "output_wrong": 0,
        "lag_per_s": 0.02,
        "merged": 0,
        "kill": None,
        "fell_behind": False,
        "histogram": "HISTOGRAM",
        "valid": True,
        "problems": [],
    }


def made_lane(shape: Made, runs: Sequence[Json]) -> Json:
    """A lane's entry, summed up from its runs."""
    lane: Json = {
        "lane": shape.lane,
        "title": shape.title,
        "work": runs[0]["work"],
        "rate_per_s": runs[0]["rate_per_s"],
    }
    spread = {}
    for name in ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"):
        known = [run["result"][name] for run in runs if run["result"][name] is not None]
        lane[name] = None if not known else max(known) if name == "max_ms" else float(np.median(known))
        if known:
            spread[name] = [min(known), max(known)]
    lane |= {name: sum(run["result"][name] for run in runs) for name in ("samples", "lost", "duplicated")}
    lane["merged"] = sum(run["merged"] for run in runs)
    settings = {} if shape.lane == "floor" else {"spark.sql.streaming.stateStore.rocksdb.memtable": "8 MiB"}
    return lane | {"runs": len(runs), "spread": spread, "valid": True, "settings": settings}


def made_once(make: Callable[[], Json]) -> Callable[[], Json]:
    """Making a result takes a while. Each caller gets a copy of its own, as a reader of result.json would."""
    text = cache(lambda: json.dumps(make()))

    @wraps(make)
    def copy() -> Json:
        return dict(json.loads(text()))

    return copy


def _frame(study: str) -> Json:
    return {
        "schema": 1,
        "tool": "tailrace 0.2.0",
        "study": study,
        "profile": "full" if study == "bench" else None,
        "started": "2026-11-15T16:20:00Z",
        "took_s": 512.3,
        "command": f"tailrace bench {'--profile full' if study == 'bench' else study}",
        "settings": {
            "rate_per_s": 2000, "payload_bytes": 128, "partitions": 2, "warmup_s": 15, "seconds": 60, "runs": 3,
            "shape": "constant", "checkpoint_every": "20s", "trigger_every": "500ms",
        },
        "clients": {
            "producer": {"acks": "all", "linger.ms": 0, "enable.idempotence": True},
            "probe": {"fetch.min.bytes": 1, "fetch.max.wait.ms": 500, "isolation.level": "read_uncommitted"},
            "topics": {"message.timestamp.type": "LogAppendTime"},
        },
        "versions": {"tailrace": "0.2.0", "pyspark": "4.3.0", "kafka broker": "4.1.0", "java": "21.0.4"},
        "commit": "9f8828155d2c0a3f7a4c2a31f4be0d18e7ac0f11",
        "machine": {"cpu": "Some CPU at 2.50GHz", "cores": 2, "memory_gib": 24, "system": "Linux-6.18-x86_64"},
        "notes": ["Broker, load, probe and engine share one machine of 2 cores."],
        "unavailable": [],
        "lanes": {},
        "runs": [],
        "ratios": [],
        "declined": [],
        "valid": True,
        "verdict": [],
    }  # fmt: skip


def _add(result: Json, shape: Made, key: str, work: str = "stateless", rate: float = 2000, runs: int = 3) -> None:
    own = [made_run(shape, key, work, rate, number) for number in range(1, runs + 1)]
    result["runs"] += own
    result["lanes"][key] = made_lane(shape, own)


@made_once
def bench_result() -> Json:
    """The benchmark itself: three lanes, three runs each."""
    result = _frame("bench")
    for shape in (FLOOR, MICROBATCH, REALTIME):
        _add(result, shape, shape.lane)
    slow, fast = result["lanes"]["microbatch"], result["lanes"]["realtime"]
    for name in ("p50", "p95", "p99"):
        ratio = slow[f"{name}_ms"] / fast[f"{name}_ms"]
        result["ratios"].append({
            "work": "stateless", "rate_per_s": 2000, "slow": "microbatch", "fast": "realtime", "percentile": name,
            "median": round(ratio, 1), "low": round(ratio * 0.94, 1), "high": round(ratio * 1.05, 1), "runs": 3,
        })  # fmt: skip
    result["declined"] = ["micro-batch against real time in aggregate: populations differ, so no ratio"]
    result["unavailable"] = [
        {"lane": "quix-tuned", "title": "Quix Streams, tuned", "what": "pip refused", "why": "no wheel for this Python"}
    ]
    return result


@made_once
def void_result() -> Json:
    """A benchmark that does not count: a lane lost records, another repeated some, percentiles are missing."""
    result = bench_result()
    result |= {"valid": False, "verdict": ["real time, run 2: 120 records never arrived"]}
    run = next(each for each in result["runs"] if each["key"] == "realtime" and each["run"] == 2)
    run |= {"valid": False, "problems": ["120 records never arrived", "p99 publish delay is 31 % of p99"]}
    run["result"] |= {"lost": 120, "duplicated": 7, "p999_ms": None}
    run |= {"output_wrong": 3, "detail": "Traceback: the last words of the process"}
    result["lanes"]["realtime"] |= {"lost": 120, "duplicated": 7, "valid": False, "p999_ms": None}
    return result


@made_once
def sweep_result() -> Json:
    """Latency against the trigger interval."""
    result = _frame("sweep")
    result["sweep"] = []
    for every in (0, 100, 200, 500, 1000, 2000):
        key = f"microbatch {every}ms"
        _add(result, Made("microbatch", "micro-batch", 95, 0.2, max(every / 1000, 0.1), waits=True), key, runs=1)
        result["sweep"].append({"trigger_ms": every, "key": key})
    _add(result, REALTIME, "realtime", runs=1)
    return result


@made_once
def rates_result() -> Json:
    """The ladder of rates."""
    result = _frame("rates")
    lanes: Json = {}
    for shape, highest in ((REALTIME, 8000), (Made("realtime-stock", "real time, Spark's defaults", 4.0), 2000)):
        ladder = []
        for rate in (10, 100, 1000, 2000, 4000, 8000, 16000):
            key = f"{shape.lane} stateless {rate}"
            strained = shape.typical_ms * (1 if rate <= highest else 300) * (1 + rate / 8000)
            _add(result, Made(shape.lane, shape.title, strained), key, rate=rate, runs=1)
            why = "" if rate <= highest else "p99 is above 100 ms and grows by 31 ms a second"
            ladder.append({"rate_per_s": rate, "key": key, "sustained": rate <= highest, "why": why})
        lanes[shape.lane] = {"highest_per_s": highest, "ladder": ladder}
    result["rates"] = {"bound_ms": 100, "lanes": lanes}
    return result


@made_once
def gap_result() -> Json:
    """The pause at a batch boundary."""
    result = _frame("gap")
    intervals = []
    for work, pause in (("stateless", 130.0), ("aggregate", 640.0)):
        for every in (5, 10, 20):
            key = f"realtime {work} {every}s"
            shape = Made("realtime", f"real time, checkpoint every {every} s", 0.8, 0.4, every_s=every, pause_ms=pause)
            _add(result, shape, key, work=work, runs=1)
            boundaries = result["runs"][-1]["boundaries"]
            intervals.append({
                "work": work, "checkpoint_every_s": every, "key": key,
                "pauses_ms": [each["pause_ms"] for each in boundaries], "parts_ms": boundaries[0]["parts_ms"],
                "overhead_percent": round(pause / every / 10, 2), "replay_records": 1800 * every,
                "replay_bound_records": 2000 * every, "recovery_s": 6.2,
            })  # fmt: skip
        _add(result, Made("realtime", "real time, killed", 0.8), f"realtime {work} killed", work=work, runs=1)
        result["runs"][-1]["kill"] = {"at_s": 21.5, "silent_s": 6.2, "replayed": 9000}
        result["runs"][-1]["result"]["duplicated"] = 9000
        result["lanes"][f"realtime {work} killed"]["duplicated"] = 9000
    result["gap"] = {"intervals": intervals}
    return result


@made_once
def engines_result() -> Json:
    """Engines side by side, some works beyond some of them."""
    result = _frame("engines")
    engines = (
        FLOOR,
        REALTIME,
        Made("flink", "Flink, default", 51, 0.3),
        Made("flink-tuned", "Flink, buffer timeout 0", 0.73),
        Made("kafka-streams", "Kafka Streams", 0.70),
        Made("quix", "Quix Streams", 0.79),
        Made("pyflink", "PyFlink, process mode", 617, 0.2),
    )
    for work, factor in (("stateless", 1.0), ("aggregate", 2.2), ("python", 1.4)):
        for rate in (200, 2000, 8000):
            for shape in engines:
                if shape.lane == "pyflink" and work != "python":
                    continue
                strained = shape.typical_ms * factor * (1 + rate / 8000)
                key = f"{shape.lane} {work} {rate}"
                _add(result, Made(shape.lane, shape.title, strained, shape.width), key, work=work, rate=rate, runs=1)
    for work in ("stateless", "aggregate"):
        for lane, times in (("flink", 76.0), ("flink-tuned", 1.08), ("kafka-streams", 0.98), ("quix", 1.1)):
            result["ratios"].append({
                "work": work, "rate_per_s": 2000, "slow": f"{lane} {work} 2000", "fast": f"realtime {work} 2000",
                "percentile": "p50", "median": times, "low": times * 0.9, "high": times * 1.1, "runs": 1,
            })  # fmt: skip
    behind = next(run for run in result["runs"] if run["key"] == "quix stateless 8000")
    behind |= {"fell_behind": True, "valid": False, "problems": ["the lane fell behind: latency grew by 900 ms"]}
    result["lanes"]["quix stateless 8000"]["valid"] = False
    result["lanes"]["flink aggregate 2000"]["merged"] = 1200
    result["unavailable"] = [{"lane": "x", "title": "Another engine", "what": "its jar was refused", "why": "404"}]
    return result


STUDIES: dict[str, Callable[[], Json]] = {
    "bench": bench_result,
    "void": void_result,
    "sweep": sweep_result,
    "rates": rates_result,
    "gap": gap_result,
    "engines": engines_result,
}

if __name__ == "__main__":
    # To look at: python -m tests.unit.report.results FOLDER
    import sys

    from tailrace.report import write_report
    from tailrace.report.result import Result

    for study, make in STUDIES.items():
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        write_report(Result.from_json(make()), folder / f"{study}.html")
