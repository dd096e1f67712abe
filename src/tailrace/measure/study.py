"""A study: cells measured in turn, several times over, into one result."""

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tailrace.errors import LaneUnavailable, TailraceError
from tailrace.measure.run import Bench, CellPlan, run_cells
from tailrace.measure.screen import Screen
from tailrace.measure.summary import (
    PERCENTILES,
    Run,
    command_line,
    commit,
    lane_object,
    now,
    ratio,
    surroundings,
    verdict,
)
from tailrace.version import VERSION

RESULT_FILE = "result.json"
RUNS_FILE = "runs.jsonl"
HISTOGRAM_FILE = "latency.hlog"


@dataclass(frozen=True)
class Study:
    """What is to be measured.

    Attributes:
        name: ``bench``, ``sweep``, ``rates``, ``gap``, ``engines`` or ``pipeline``.
        cells: What is measured, in order.
        runs: How often.
        settings: What the user chose, for the result.
        references: The lanes that others are compared with, each at its own works.
        profile: The name of the profile, if one was used.
        notes: What a reader has to know.
        add: What the study adds to the result, from the result itself.
        skips: Why a cell need not be measured, given the runs so far; nothing where it is to be measured.
        tolerates: Whether a void run is a finding of the study, not a fault of it.
        shares_engines: Whether cells that follow each other and differ in their load alone are measured in turn in
            one life of their engine.
    """

    name: str
    cells: Sequence[CellPlan]
    runs: int
    settings: Mapping[str, Any]
    references: tuple[str, ...] = ("realtime",)
    profile: str | None = None
    notes: Sequence[str] = ()
    add: Callable[[dict[str, Any]], dict[str, Any]] = field(default=lambda _result: {})
    skips: Callable[[CellPlan, Sequence[Run]], str] = field(default=lambda _cell, _runs: "")
    tolerates: Callable[[Run], bool] = field(default=lambda _run: False)
    shares_engines: bool = False

    @property
    def fingerprint(self) -> str:
        """The same for a study that is the same, so that it may go on where it was left."""
        told = [self.name, self.runs, dict(self.settings), [cell.key for cell in self.cells], VERSION, commit()]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]


def measuring_order(groups: Sequence[Sequence[CellPlan]], runs: int) -> Iterator[tuple[int, Sequence[CellPlan]]]:
    """Each run takes all cells; every second run takes them backwards, so that no lane always comes first."""
    for run in range(1, runs + 1):
        for group in groups if run % 2 else reversed(groups):
            yield run, group


def groups_of(cells: Sequence[CellPlan], *, shares_engines: bool) -> list[list[CellPlan]]:
    """The cells that are measured in one life of an engine: each its own, or those that follow each other."""
    if not shares_engines:
        return [[cell] for cell in cells]
    return [list(group) for _, group in itertools.groupby(cells, lambda cell: (cell.lane.name, cell.work))]


def run_study(study: Study, bench: Bench, screen: Screen, out: Path) -> dict[str, Any]:
    """Measure everything; return the result and keep it in ``out``.

    What was measured is kept at once: the same command goes on where an earlier one ended, and measures again what was
    void.
    """
    began, started = time.monotonic(), now()
    out.mkdir(parents=True, exist_ok=True)
    available, unavailable = _prepare(study.cells, screen)
    kept = _Kept(out / RUNS_FILE, study.fingerprint, study.tolerates)
    total = len(available) * study.runs
    if kept.lines:
        done = len({(line["key"], line["run"]) for line in kept.lines if kept.has(line["key"], line["run"])})
        screen.say(f"Going on with {out}: {done} of {total} runs are done")
    number = 0
    for run, group in measuring_order(groups_of(available, shares_engines=study.shares_engines), study.runs):
        first = number + 1
        number += len(group)
        wanted = [cell.key for cell in group if not kept.has(cell.key, run)]
        if not wanted:
            continue
        if why := study.skips(group[0], kept.lines):
            screen.say(f"  {group[0].title}, {group[0].plan.flow.rate_per_s:,.0f}/s: left out, {why}")
            continue
        screen.overall(f"run {first} of {total}" if len(group) == 1 else f"runs {first} to {number} of {total}")
        for place, (cell, line) in enumerate(_measured(bench, group, screen), start=first):
            if cell.key not in wanted:
                continue  # it was valid before: figures are never chosen among
            kept.add({**line, "run": run, "order": place})
            screen.done(cell.title, line["result"])
            for problem in line["problems"]:
                screen.say(f"    void: {problem}")
    versions = dict(pair for cell in available for pair in cell.lane.versions().items())
    result = assemble(study, available, kept.in_order(), unavailable)
    result = {**surroundings({**versions, **_broker_version()}), **result}
    result |= {"started": started, "took_s": round(time.monotonic() - began, 1), "command": command_line()}
    if bench.broker_log is not None:
        result["notes"].append(f"The broker was the benchmark's own and kept its log {bench.broker_log}.")
    result |= study.add(result)
    (out / RESULT_FILE).write_text(json.dumps(result, indent=1) + "\n")
    write_histograms(result["runs"], out / HISTOGRAM_FILE)
    if result["valid"]:
        # All of it is in the result now. The same command measures anew.
        (out / RUNS_FILE).unlink(missing_ok=True)
    else:
        screen.say("The same command measures again what is void, and only that.")
    return result


def _measured(bench: Bench, group: Sequence[CellPlan], screen: Screen) -> Iterable[tuple[CellPlan, dict[str, Any]]]:
    title = group[0].title
    try:
        return zip(group, run_cells(bench, group, lambda moment: screen.show(title, moment)), strict=True)
    except TailraceError as failed:
        if len(group) > 1:
            # What ended the engine at one rate says nothing of the others.
            screen.say(f"  {title}: {failed.what}; each rate gets an engine of its own")
            return (pair for cell in group for pair in _measured(bench, [cell], screen))
        # One lane that fails does not take the others' figures with it; the result says what happened.
        return [(group[0], failed_run(group[0], failed))]


def failed_run(cell: CellPlan, failed: TailraceError) -> dict[str, Any]:
    """The line of a run that gave no figures."""
    empty = dict.fromkeys((*PERCENTILES, "max_ms"), None)
    return {
        "key": cell.key,
        "lane": cell.lane.name,
        "work": str(cell.work),
        "rate_per_s": cell.plan.flow.rate_per_s,
        "result": {**empty, "samples": 0, "lost": 0, "duplicated": 0},
        "merged": 0,
        "mean_ms": None,
        "publish_delay_ms": None,
        "achieved_rate_per_s": None,
        "spans_ms": None,
        "percentiles": [],
        "timeline": None,
        "boundaries": [],
        "resources": {},
        "first_output_s": None,
        "output_checked": 0,
        "output_wrong": 0,
        "lag_per_s": None,
        "kill": None,
        "fell_behind": False,
        "histogram": None,
        "valid": False,
        "problems": [f"{failed.what}: {failed.why}" if failed.why else failed.what],
        "detail": failed.detail,
    }


def assemble(
    study: Study, cells: Sequence[CellPlan], runs: Sequence[Run], unavailable: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The part of a result that is about its figures."""
    by_key = {cell.key: [run for run in runs if run["key"] == cell.key] for cell in cells}
    cells = [cell for cell in cells if by_key[cell.key]]
    lanes = {cell.key: lane_object(cell, by_key[cell.key]) for cell in cells}
    ratios, declined = _ratios(study, cells, by_key)
    judged = [run for run in runs if not study.tolerates(run)]
    valid, told = verdict(judged, unavailable)
    if not runs:
        valid, told = False, ["nothing was measured", *told]
    return {
        "study": study.name,
        "profile": study.profile,
        "settings": dict(study.settings),
        "notes": list(study.notes),
        "unavailable": list(unavailable),
        "lanes": lanes,
        "runs": list(runs),
        "ratios": ratios,
        "declined": declined,
        "valid": valid,
        "verdict": told,
    }


def _ratios(
    study: Study, cells: Sequence[CellPlan], by_key: Mapping[str, Sequence[Run]]
) -> tuple[list[dict[str, Any]], list[str]]:
    ratios, declined = [], []
    for fast, slow in _pairs(study, cells):
        if slow.merges != fast.merges:
            declined.append(
                f"{slow.title} against {fast.title}, {slow.work}: one merges updates of a key and the other does not, "
                "so they are not about the same records"
            )
            continue
        lines = (by_key[slow.key], by_key[fast.key])
        if not all(run["valid"] for runs in lines for run in runs):
            declined.append(f"{slow.title} against {fast.title}, {slow.work}: a run is void")
            continue
        found = (ratio(*lines, percentile) for percentile in PERCENTILES)
        ratios += [each for each in found if each is not None]
    return ratios, declined


def _pairs(study: Study, cells: Sequence[CellPlan]) -> Iterator[tuple[CellPlan, CellPlan]]:
    """A reference and each other lane of the same work and rate."""
    for fast in (cell for cell in cells if cell.lane.name in study.references):
        for slow in cells:
            same = (slow.work, slow.plan.flow.rate_per_s) == (fast.work, fast.plan.flow.rate_per_s)
            if same and not slow.lane.is_baseline and slow.lane.name not in study.references:
                yield fast, slow


def _prepare(cells: Iterable[CellPlan], screen: Screen) -> tuple[list[CellPlan], list[dict[str, str]]]:
    """Set up every lane once; those that cannot be set up are told, not forgotten."""
    unavailable: dict[str, dict[str, str]] = {}
    ready: set[str] = set()
    available = []
    for cell in cells:
        name = cell.lane.name
        if name not in ready and name not in unavailable:
            try:
                cell.lane.prepare(screen.say)
                ready.add(name)
            except LaneUnavailable as refused:
                unavailable[name] = {"lane": name, "title": cell.title, "what": refused.what, "why": refused.why}
                screen.say(f"  {cell.title}: not available: {refused.what}")
        if name in ready:
            available.append(cell)
    return available, list(unavailable.values())


def write_histograms(runs: Iterable[Run], file: Path) -> None:
    """All runs as an HDR histogram log, a tag for each; values in microseconds."""
    lines = ["#[Histogram log format version 1.3]", '"StartTimestamp","Interval_Length","Interval_Max","Histogram"']
    for run in runs:
        if run["histogram"] is not None:
            tag = f"{run['key']}-{run['run']}".replace(" ", "_").replace(",", "_")
            lines.append(f"Tag={tag},0.000,1.000,{run['result']['max_ms'] or 0},{run['histogram']}")
    file.write_text("\n".join(lines) + "\n")


def _broker_version() -> dict[str, str]:
    from tailrace.toolchain import read_lock

    jars = {jar.artifact: jar.version for jar in read_lock()}
    return {"kafka broker": jars["kafka_2.13"]} if "kafka_2.13" in jars else {}


class _Kept:
    """The runs of a study that are done."""

    def __init__(self, file: Path, fingerprint: str, tolerates: Callable[[Run], bool]) -> None:
        self._file = file
        self._fingerprint = fingerprint
        self._tolerates = tolerates
        self.lines: list[dict[str, Any]] = []
        if file.exists():
            self._load()

    def _load(self) -> None:
        kept = self._file.read_text()
        if kept and not kept.endswith("\n"):
            # The run was killed while it wrote this line, which must not swallow the next one.
            with self._file.open("a") as file:
                file.write("\n")
        for text in kept.splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line.get("fingerprint") == self._fingerprint:
                self.lines.append(line)

    def has(self, key: str, run: int) -> bool:
        """Whether a run is done: measured, and not void."""
        return any(
            line["key"] == key and line["run"] == run and (line["valid"] or self._tolerates(line))
            for line in self.lines
        )

    def add(self, line: dict[str, Any]) -> None:
        """Keep a run, at once."""
        self.lines.append({**line, "fingerprint": self._fingerprint})
        with self._file.open("a") as file:
            file.write(json.dumps(self.lines[-1]) + "\n")

    def in_order(self) -> list[dict[str, Any]]:
        """Every run, at its last measuring, in the order of the study and without what only this file needs."""
        last = {(line["key"], line["run"]): line for line in self.lines}
        ordered = sorted(last.values(), key=lambda line: int(line["order"]))
        return [{key: value for key, value in line.items() if key != "fingerprint"} for line in ordered]
