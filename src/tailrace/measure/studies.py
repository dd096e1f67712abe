"""The kinds of study: lanes side by side, trigger intervals, rates, checkpoints, other engines, the user's pipeline."""

import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tailrace.errors import OptionRefused, PipelineNotFound
from tailrace.kafka.client import plain_client
from tailrace.kafka.records import read_records
from tailrace.measure.lane import Lane, Trigger
from tailrace.measure.lanes import Floor, all_lanes, lanes_named
from tailrace.measure.lanes.spark import SparkLane
from tailrace.measure.options import BOUNDARIES_NEEDED, PROFILES, BenchOptions, caveats
from tailrace.measure.run import LATER_WARMUP_S, CellPlan
from tailrace.measure.spark_process import SparkSettings
from tailrace.measure.study import Study
from tailrace.measure.traffic.probe import ByLineage
from tailrace.measure.traffic.records import Generated, Records, load_function, save_for_replay
from tailrace.measure.works import Work
from tailrace.pipeline import Mode, Pipeline
from tailrace.prepare.loader import load_pipeline
from tailrace.report.result import Gap, GapInterval, Ladder, Rates, Reason, Result, Run, Rung, SweepPoint


def lanes_study(options: BenchOptions, profile: str) -> Study:
    """Measure the chosen lanes side by side, with one work and one rate."""
    work = Work(options.work)
    lanes = lanes_named(options.lanes)
    for lane in lanes:
        if work not in lane.works:
            can = ", ".join(sorted(lane.works))
            raise OptionRefused(
                f"lane {lane.name} does not support the work {work}", fix=f"use --work with one of: {can}"
            )
    return Study(
        "bench",
        [options.cell(lane) for lane in lanes],
        options.runs,
        options.as_settings(),
        profile=profile,
        notes=[*caveats(options), *_own_notes(options, profile)],
    )


def _own_notes(options: BenchOptions, profile: str) -> list[str]:
    changed = [
        name
        for name, value in PROFILES[profile].as_settings().items()
        if options.as_settings()[name] != value and name not in ("boundaries", "lanes")
    ]
    return [f"Changed from the profile {profile}: {', '.join(changed)}."] if changed else []


INTERVALS_MS = (0, 50, 100, 200, 500, 1000, 2000, 5000)
BESIDE = ("floor", "continuous", "realtime")


def sweep_study(options: BenchOptions, intervals_ms: tuple[int, ...] = INTERVALS_MS) -> Study:
    """Measure micro-batch at each trigger interval."""
    (batch,) = lanes_named(["microbatch"])
    cells = [options.cell(lane) for lane in lanes_named(BESIDE)]
    keys = {}
    for interval in intervals_ms:
        keys[interval] = f"microbatch {interval} ms"
        cells.append(replace(options, trigger_every=f"{interval}ms").cell(batch, key=keys[interval]))

    def add(result: Result) -> Result:
        return replace(result, sweep=tuple(SweepPoint(interval, key) for interval, key in keys.items()))

    settings = {**options.as_settings(), "intervals_ms": list(intervals_ms)}
    return Study(
        "sweep",
        cells,
        options.runs,
        settings,
        notes=[
            *caveats(options),
            "An interval shorter than a batch has no effect: each batch starts when the previous one ends.",
        ],
        add=add,
    )


LADDER = (10.0, 100.0, 500.0, 1000.0, 2000.0, 4000.0, 8000.0, 12000.0, 16000.0, 24000.0)
BOUND_MS = 100.0


def rates_study(options: BenchOptions, ladder: Sequence[float] = LADDER, bound_ms: float = BOUND_MS) -> Study:
    """Measure each lane at rising rates, until it cannot keep up."""
    lanes = [lane for lane in lanes_named(options.lanes) if not lane.is_baseline]
    rungs = sorted(ladder)
    cells = [options.cell(lane, rate=rate, key=f"{lane.name} {rate:g}/s") for rate in rungs for lane in lanes]

    def skips(cell: CellPlan, runs: Sequence[Run]) -> str:
        failed = [run for run in runs if run.lane == cell.lane.name and why_not(run, bound_ms)]
        slower = [run.rate_per_s for run in failed if (run.rate_per_s or 0) < cell.plan.flow.rate_per_s]
        return f"{min(rate or 0 for rate in slower):,.0f}/s was already too much" if slower else ""

    def add(result: Result) -> Result:
        ladders = {lane.name: _ladder(lane.name, result.runs, bound_ms) for lane in lanes}
        return replace(result, rates=Rates(bound_ms, ladders))

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
        tolerates=lambda run: bool(run.problems),  # each rung says why the lane did not reach it
    )


def why_not(run: Run, bound_ms: float) -> str:
    """Return why a lane does not sustain the rate of a run, or an empty text if it does."""
    if run.problems:
        return run.problems[0]
    # At a very low rate there are too few records for a p99, so the longest wait counts.
    worst = run.result.p99_ms if run.result.p99_ms is not None else run.result.max_ms
    if worst is None:
        return "no result came out"
    return f"p99 {worst} ms" if worst > bound_ms else ""


def _ladder(lane: str, runs: Sequence[Run], bound_ms: float) -> Ladder:
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        if run.lane == lane:
            by_rate.setdefault(run.rate_per_s or 0.0, []).append(run)
    rungs = []
    for rate, here in sorted(by_rate.items()):
        why = next((why for run in here if (why := why_not(run, bound_ms))), "")
        rungs.append(Rung(rate, here[0].key, sustained=not why, why=why))
    return Ladder(max((rung.rate_per_s for rung in rungs if rung.sustained), default=None), tuple(rungs))


INTERVALS_S = (5, 10, 30)
GAP_WORKS = (Work.STATELESS, Work.AGGREGATE)
_RECOVERY_S = 60.0
"""How long a killed engine may take until all records have come out."""


def gap_study(
    options: BenchOptions,
    intervals_s: Sequence[int] = INTERVALS_S,
    works: Sequence[Work] = GAP_WORKS,
    *,
    kills: bool = True,
) -> Study:
    """Measure real time at each checkpoint interval, with and without state.

    One run per interval shows the pause at every boundary and its parts. In a second run the engine is killed and
    started again, so that the records since the last checkpoint come out twice.
    """
    (lane,) = lanes_named(["realtime"])
    cells = []
    for work in works:
        for interval in intervals_s:
            cells.append(_pause_cell(options, lane, work, interval))
            if kills:
                cells.append(_kill_cell(options, lane, work, interval))

    def add(result: Result) -> Result:
        rows = [_gap_interval(result.runs, work, interval) for work in works for interval in intervals_s]
        return replace(result, gap=Gap(tuple(row for row in rows if row is not None)))

    settings = {**options.as_settings(), "intervals_s": list(intervals_s), "works": [str(work) for work in works]}
    return Study(
        "gap",
        cells,
        options.runs,
        settings,
        notes=[
            "A pause is the longest time around a boundary without a result at the consumer.",
            "Without state Spark writes its logs while the next batch runs, so these writes are not part of the pause.",
        ],
        add=add,
    )


def _pause_cell(options: BenchOptions, lane: Lane, work: Work, interval_s: int) -> CellPlan:
    longer = replace(
        options,
        checkpoint_every=f"{interval_s}s",
        seconds=max(options.seconds, interval_s * (BOUNDARIES_NEEDED + 0.5)),
        boundaries=BOUNDARIES_NEEDED,
    )
    cell = longer.cell(lane, work=work, key=_key(work, interval_s))
    return replace(cell, title=f"{work}, every {interval_s} s", settings={"checkpoint every": f"{interval_s} s"})


def _kill_cell(options: BenchOptions, lane: Lane, work: Work, interval_s: int) -> CellPlan:
    """Kill the engine late in an interval after the warm-up."""
    after_s = options.warmup + 0.9 * interval_s
    shorter = replace(options, checkpoint_every=f"{interval_s}s", seconds=interval_s + 10.0, boundaries=0)
    cell = shorter.cell(lane, work=work, key=_killed_key(work, interval_s))
    return replace(
        cell,
        title=f"{work}, every {interval_s} s, killed",
        settings={"checkpoint every": f"{interval_s} s", "killed": f"{after_s:g} s after the first result"},
        plan=replace(cell.plan, drain_s=_RECOVERY_S),
        kill_after_s=after_s,
    )


def _key(work: Work, interval_s: int) -> str:
    return f"realtime {work} {interval_s}s"


def _killed_key(work: Work, interval_s: int) -> str:
    return f"{_key(work, interval_s)} killed"


def _gap_interval(runs: Sequence[Run], work: Work, interval_s: int) -> GapInterval | None:
    key = _key(work, interval_s)
    here = [run for run in runs if run.key == key]
    held = [boundary for run in here for boundary in run.boundaries]
    pauses = [boundary.pause_ms for boundary in held if boundary.pause_ms is not None]
    if not pauses:
        return None
    names = dict.fromkeys(name for boundary in held for name in boundary.parts_ms)
    parts = {name: statistics.median(each.parts_ms[name] for each in held if name in each.parts_ms) for name in names}
    killed = _killed_key(work, interval_s)
    kills = [run.kill for run in runs if run.key == killed and run.kill is not None]
    silent = [kill.silent_s for kill in kills if kill.silent_s is not None]
    return GapInterval(
        work=str(work),
        checkpoint_every_s=interval_s,
        key=key,
        pauses_ms=tuple(pauses),
        parts_ms=parts,
        overhead_percent=round(statistics.median(pauses) / (interval_s * 10), 2),
        replay_records=statistics.median(kill.replayed for kill in kills) if kills else None,
        replay_bound_records=round((here[0].rate_per_s or 0) * interval_s),
        recovery_s=statistics.median(silent) if silent else None,
    )


ENGINE_WORKS = (Work.STATELESS, Work.AGGREGATE, Work.PYTHON)
RATES = (200.0, 2000.0, 8000.0)
_FAIRNESS = (
    "Every engine has the same producer and consumer settings, partitions and parallelism. The default lanes keep "
    "all other defaults of the engine; the tuned lanes follow its own documentation."
)
_IN_TURN = (
    f"One engine process runs all rates, the lowest first. Each rate has its own load, and the first "
    f"{LATER_WARMUP_S:g} s after a change do not count. An engine that fell behind at one rate starts the next "
    "rate with a backlog."
)
HELD_S = 30.0
"""How long Kafka Streams holds an aggregate by default: until its next commit."""
SATURATED = 0.9
"""If more than this part of all cores is in use, the lane causes a late load."""
_NOT_COMPARED = (
    "microbatch", "microbatch-stock", "continuous", "realtime-timer", "realtime-shared", "realtime-builtin",
    "realtime-at-least-once", "realtime-spark-sink",
)  # fmt: skip


def engines_study(
    options: BenchOptions,
    works: Sequence[Work] = ENGINE_WORKS,
    rates: Sequence[float] = RATES,
    names: Sequence[str] = (),
) -> Study:
    """Measure every lane at each supported work and every rate, the lowest first, in one engine process."""
    chosen = lanes_named(names) if names else [lane for name, lane in all_lanes().items() if name not in _NOT_COMPARED]
    cells = [
        _patient(options.cell(lane, work=work, rate=rate, key=f"{lane.name} {work} {rate:g}"))
        for work in works
        for lane in chosen
        for rate in sorted(rates)
        if work in lane.works and not (lane.is_baseline and work is not Work.STATELESS)
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
    """Return whether a run is void only because its lane cannot keep up, or leaves the load too little CPU time.

    Any other problem is a fault.
    """
    used = sum(each.cpu_cores or 0.0 for each in run.resources.values())
    tolerated = {Reason.FELL_BEHIND}
    if used >= SATURATED * (os.cpu_count() or 1):
        tolerated.add(Reason.LATE_LOAD)
    return bool(run.reasons) and set(run.reasons) <= tolerated


def _patient(cell: CellPlan) -> CellPlan:
    """Lengthen the window and the wait for a lane that holds results for half a minute."""
    if not cell.merges:
        return cell
    return replace(cell, plan=replace(cell.plan, seconds=max(cell.plan.seconds, HELD_S), held_s=HELD_S))


_NO_LOSSES = (
    "The benchmark matches a result with its record by the lineage in its headers. A record that the pipeline "
    "drops has no result, so this benchmark cannot detect losses."
)
_TITLES = {Mode.MICROBATCH: "micro-batch", Mode.REALTIME: "real time"}


def pipeline_study(spec: str, options: BenchOptions, records: Records) -> Study:
    """Measure the pipeline in micro-batch and real time, with Kafka alone as the baseline."""
    pipeline = load_pipeline(spec)
    require_measurable(pipeline)
    lanes: dict[str, Floor | SparkLane] = {"floor": Floor()}
    for mode in (Mode.MICROBATCH, Mode.REALTIME):
        lanes[str(mode)] = SparkLane(
            str(mode),
            f"{pipeline.name}, {_TITLES[mode]}",
            frozenset({Work.STATELESS}),
            SparkSettings(tailrace=True, trigger=Trigger(str(mode)), pipeline=_absolute(spec)),
        )
    for name in options.lanes:
        if name not in lanes:
            raise OptionRefused(f"your pipeline has no lane {name!r}", fix=f"use one or more of: {', '.join(lanes)}")
    return Study(
        "pipeline",
        [_with_records(options.cell(lanes[name]), records) for name in options.lanes],
        options.runs,
        {**options.as_settings(), "pipeline": spec, "records": type(records).__name__.lower()},
        notes=[_NO_LOSSES],
    )


def require_measurable(pipeline: Pipeline) -> None:
    """Refuse a pipeline that this benchmark cannot measure.

    Raises:
        OptionRefused: It has several sources, or no lineage.
    """
    if len(pipeline.sources) > 1:
        raise OptionRefused(
            f"pipeline {pipeline.name!r} has {len(pipeline.sources)} sources",
            why="the benchmark sends records to one topic",
            fix="measure a pipeline with one source",
        )
    if not pipeline.lineage:
        raise OptionRefused(
            f"pipeline {pipeline.name!r} has lineage=False",
            why="the benchmark finds the record of a result by the headers that lineage writes",
            fix="measure it with lineage=True; what lineage costs is in docs/concepts/lineage.md",
        )


def generator(text: str) -> Generated:
    """Return the generator that ``FILE:FUNCTION`` names.

    Raises:
        PipelineNotFound: There is none.
    """
    file, _, function = text.rpartition(":")
    if not file:
        raise PipelineNotFound(f"invalid --generator {text!r}", fix="use FILE:FUNCTION")
    load_function(file, function)
    return Generated(str(Path(file).absolute()), function)


def replay(servers: str, topic: str, limit: int, folder: Path) -> Records:
    """Save the first records of a topic for replay.

    Raises:
        OptionRefused: There is none.
    """
    saved = [
        (record.key, record.value)
        for record in itertools.islice(read_records(plain_client(servers), topic), limit)
        if record.value is not None
    ]
    if not saved:
        raise OptionRefused(f"topic {topic!r} has no records to replay", fix="name another topic, or --generator")
    folder.mkdir(parents=True, exist_ok=True)
    return save_for_replay(saved, folder / "replay.npz")


def _with_records(cell: CellPlan, records: Records) -> CellPlan:
    flow = replace(cell.plan.flow, records=records, stamped=True)
    return replace(cell, plan=replace(cell.plan, flow=flow, known_by=ByLineage()))


def _absolute(spec: str) -> str:
    file, colon, name = spec.partition(":")
    return f"{Path(file).absolute()}{colon}{name}" if file.endswith(".py") else spec
