"""A study: every cell measured several times, and one result."""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tailrace.errors import LaneUnavailable, TailraceError
from tailrace.measure.run import Bench, CellPlan, failed_run, run_cells
from tailrace.measure.screen import Screen
from tailrace.measure.summary import command_line, commit, now, ratio, summary, verdict, with_surroundings
from tailrace.report.result import PERCENTILES, Ratio, Result, Run, Unavailable
from tailrace.version import VERSION

RESULT_FILE = "result.json"
RUNS_FILE = "runs.jsonl"
HISTOGRAM_FILE = "latency.hlog"


@dataclass(frozen=True)
class Study:
    """A question, the cells that answer it, and what to conclude from their runs.

    Attributes:
        name: The kind of study: ``bench``, ``sweep``, ``rates``, ``gap``, ``engines`` or ``pipeline``.
        cells: What it measures, in this order.
        runs: How often it measures every cell.
        settings: What the user chose, for the result.
        references: The lanes that others are compared with, each at its own works.
        profile: The name of the profile, if one was used.
        notes: What a reader must know.
        add: Adds the conclusions of the study to its result.
        skips: Returns why a cell is skipped, given the runs so far, or an empty text.
        tolerates: Returns whether a void run is a finding of the study and not a fault.
        shares_engines: Whether consecutive cells that differ only in their load share one engine process.
    """

    name: str
    cells: Sequence[CellPlan]
    runs: int
    settings: Mapping[str, Any]
    references: tuple[str, ...] = ("realtime",)
    profile: str | None = None
    notes: Sequence[str] = ()
    add: Callable[[Result], Result] = field(default=lambda result: result)
    skips: Callable[[CellPlan, Sequence[Run]], str] = field(default=lambda _cell, _runs: "")
    tolerates: Callable[[Run], bool] = field(default=lambda _run: False)
    shares_engines: bool = False

    @property
    def fingerprint(self) -> str:
        """A hash that is the same for the same study, so that an interrupted one can resume."""
        parts = [self.name, self.runs, dict(self.settings), [cell.key for cell in self.cells], VERSION, commit()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def measuring_order(groups: Sequence[Sequence[CellPlan]], runs: int) -> Iterator[tuple[int, Sequence[CellPlan]]]:
    """Yield all cells once per run; every second run is backwards, so that no lane is always first."""
    for run in range(1, runs + 1):
        for group in groups if run % 2 else reversed(groups):
            yield run, group


def groups_of(cells: Sequence[CellPlan], *, shares_engines: bool) -> list[list[CellPlan]]:
    """Group the cells that share one engine process."""
    if not shares_engines:
        return [[cell] for cell in cells]
    return [list(group) for _, group in itertools.groupby(cells, lambda cell: (cell.lane.name, cell.work))]


def run_study(study: Study, bench: Bench, screen: Screen, out: Path) -> Result:
    """Measure everything; return the result and write it to ``out``.

    Every run is saved at once: the same command resumes an interrupted study, and measures void runs again.
    """
    began, started = time.monotonic(), now()
    out.mkdir(parents=True, exist_ok=True)
    available, unavailable = _prepare(study.cells, screen)
    log = _Log(out / RUNS_FILE, study)
    _measure_cells(study, available, bench, screen, log, out)
    versions = dict(pair for cell in available for pair in cell.lane.versions().items())
    result = assemble(study, available, log.in_order(), unavailable)
    result = with_surroundings(result, {**versions, **_broker_version()})
    result = replace(result, started=started, took_s=round(time.monotonic() - began, 1), command=command_line())
    if bench.broker_log is not None:
        note = f"The broker was the benchmark's own and kept its log {bench.broker_log}."
        result = replace(result, notes=(*result.notes, note))
    result = study.add(result)
    (out / RESULT_FILE).write_text(json.dumps(result.to_json(), indent=1) + "\n")
    write_histograms(result.runs, out / HISTOGRAM_FILE)
    if result.valid:
        # The result has every run now, so the same command starts over.
        (out / RUNS_FILE).unlink(missing_ok=True)
    else:
        screen.say("To repeat only the void runs, run the same command again.")
    return result


def _measure_cells(
    study: Study, cells: Sequence[CellPlan], bench: Bench, screen: Screen, log: "_Log", out: Path
) -> None:
    total = len(cells) * study.runs
    if log.runs:
        screen.say(f"Resuming {out}: {len(log.done)} of {total} runs are done")
    number = 0
    for run, group in measuring_order(groups_of(cells, shares_engines=study.shares_engines), study.runs):
        first = number + 1
        number += len(group)
        wanted = [cell.key for cell in group if (cell.key, run) not in log.done]
        if not wanted:
            continue
        if why := study.skips(group[0], log.runs):
            screen.say(f"  {group[0].title}, {group[0].plan.flow.rate_per_s:,.0f}/s: left out, {why}")
            continue
        screen.overall(f"run {first} of {total}" if len(group) == 1 else f"runs {first} to {number} of {total}")
        for place, (cell, measured) in enumerate(_measured(bench, group, screen), start=first):
            if cell.key not in wanted:
                continue  # a valid run keeps its figures
            log.add(replace(measured, run=run, order=place))
            screen.done(cell.title, measured.result)
            for problem in measured.problems:
                screen.say(f"    void: {problem}")


def _measured(bench: Bench, group: Sequence[CellPlan], screen: Screen) -> Iterable[tuple[CellPlan, Run]]:
    title = group[0].title
    try:
        return zip(group, run_cells(bench, group, lambda moment: screen.show(title, moment)), strict=True)
    except TailraceError as failed:
        if len(group) > 1:
            # What ended the engine at one rate says nothing about the other rates.
            screen.say(f"  {title}: {failed.what}; each rate gets its own engine")
            return (pair for cell in group for pair in _measured(bench, [cell], screen))
        # A lane that fails does not spoil the others; the result says what happened.
        return [(group[0], failed_run(group[0], failed))]


def assemble(
    study: Study, cells: Sequence[CellPlan], runs: Sequence[Run], unavailable: Sequence[Unavailable]
) -> Result:
    """Return the part of a result that is about its figures."""
    by_key = {cell.key: [run for run in runs if run.key == cell.key] for cell in cells}
    cells = [cell for cell in cells if by_key[cell.key]]
    ratios, declined = _ratios(study, cells, by_key)
    valid, sentences = verdict([run for run in runs if not study.tolerates(run)], unavailable)
    if not runs:
        valid, sentences = False, ("nothing was measured", *sentences)
    return Result(
        study=study.name,
        profile=study.profile,
        settings=dict(study.settings),
        notes=tuple(study.notes),
        unavailable=tuple(unavailable),
        lanes={cell.key: summary(cell, by_key[cell.key]) for cell in cells},
        runs=tuple(runs),
        ratios=tuple(ratios),
        declined=tuple(declined),
        valid=valid,
        verdict=sentences,
    )


def _ratios(
    study: Study, cells: Sequence[CellPlan], by_key: Mapping[str, Sequence[Run]]
) -> tuple[list[Ratio], list[str]]:
    ratios, declined = [], []
    for fast, slow in _pairs(study, cells):
        if slow.merges != fast.merges:
            declined.append(
                f"{slow.title} against {fast.title}, {slow.work}: one merges updates of a key and the other does not, "
                "so they are not about the same records"
            )
            continue
        runs = (by_key[slow.key], by_key[fast.key])
        if not all(run.valid for each in runs for run in each):
            declined.append(f"{slow.title} against {fast.title}, {slow.work}: a run is void")
            continue
        all_ratios = (ratio(*runs, percentile) for percentile in PERCENTILES)
        ratios += [each for each in all_ratios if each is not None]
    return ratios, declined


def _pairs(study: Study, cells: Sequence[CellPlan]) -> Iterator[tuple[CellPlan, CellPlan]]:
    """Yield each reference with every other lane of the same work and rate."""
    for fast in (cell for cell in cells if cell.lane.name in study.references):
        for slow in cells:
            same = (slow.work, slow.plan.flow.rate_per_s) == (fast.work, fast.plan.flow.rate_per_s)
            if same and not slow.lane.is_baseline and slow.lane.name not in study.references:
                yield fast, slow


def _prepare(cells: Iterable[CellPlan], screen: Screen) -> tuple[list[CellPlan], list[Unavailable]]:
    """Set up every lane once; return the cells that can be measured and the lanes that cannot."""
    unavailable: dict[str, Unavailable] = {}
    ready: set[str] = set()
    available = []
    for cell in cells:
        name = cell.lane.name
        if name not in ready and name not in unavailable:
            try:
                cell.lane.prepare(screen.say)
                ready.add(name)
            except LaneUnavailable as refused:
                unavailable[name] = Unavailable(name, cell.title, refused.what, refused.why)
                screen.say(f"  {cell.title}: not available: {refused.what}")
        if name in ready:
            available.append(cell)
    return available, list(unavailable.values())


def write_histograms(runs: Iterable[Run], file: Path) -> None:
    """Write all runs as an HDR histogram log in microseconds, with a tag for each run."""
    lines = ["#[Histogram log format version 1.3]", '"StartTimestamp","Interval_Length","Interval_Max","Histogram"']
    for run in runs:
        if run.histogram is not None:
            tag = f"{run.key}-{run.run}".replace(" ", "_").replace(",", "_")
            lines.append(f"Tag={tag},0.000,1.000,{run.result.max_ms or 0},{run.histogram}")
    file.write_text("\n".join(lines) + "\n")


def _broker_version() -> dict[str, str]:
    from tailrace.toolchain import read_lock

    jars = {jar.artifact: jar.version for jar in read_lock()}
    return {"kafka broker": jars["kafka_2.13"]} if "kafka_2.13" in jars else {}


class _Log:
    """The runs of a study that are done, in a file that survives an interruption."""

    def __init__(self, file: Path, study: Study) -> None:
        self._file = file
        self._fingerprint = study.fingerprint
        self._tolerates = study.tolerates
        self.runs: list[Run] = []
        if file.exists():
            self._load()

    def _load(self) -> None:
        text = self._file.read_text()
        if text and not text.endswith("\n"):
            # A kill interrupted the write of this line, and the next one must start on its own.
            with self._file.open("a") as file:
                file.write("\n")
        for line in text.splitlines():
            try:
                saved = json.loads(line)
            except ValueError:
                continue
            if saved.get("fingerprint") == self._fingerprint:
                self.runs.append(Run.from_json(saved))

    @property
    def done(self) -> set[tuple[str, int]]:
        """The key and number of every run that is valid, or whose faults the study tolerates."""
        return {(run.key, run.run) for run in self.runs if run.valid or self._tolerates(run)}

    def add(self, run: Run) -> None:
        """Save a run."""
        self.runs.append(run)
        with self._file.open("a") as file:
            file.write(json.dumps({**run.to_json(), "fingerprint": self._fingerprint}) + "\n")

    def in_order(self) -> list[Run]:
        """Return the last measurement of every run, in the order of the study."""
        last = {(run.key, run.run): run for run in self.runs}
        return sorted(last.values(), key=lambda run: run.order)
