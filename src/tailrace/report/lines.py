"""The lanes of a result with their label, colour, dash pattern and runs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tailrace.report.figures import is_number, rate
from tailrace.report.result import LaneSummary, Result, Run

COLOURS = 9
"""The number of colours in the stylesheet (``--lane-0`` and on)."""
DASHES: tuple[tuple[int, ...], ...] = (
    (), (9, 4), (2, 3), (10, 3, 2, 3), (5, 3), (16, 4), (8, 3, 2, 3, 2, 3), (16, 3, 5, 3),
)  # fmt: skip
"""Eight patterns and nine colours: a pair repeats only after 72 lanes."""
FIRST = ("realtime", "microbatch", "floor")
"""These lanes look the same in every report."""
BASELINE = "floor"
"""The lane without an engine."""
WORKS = {
    "aggregate": "keyed aggregate",
    "join": "broadcast join",
    "python": "Python function",
}
"""Names of works for a reader, if they differ from the name in the result."""


@dataclass(frozen=True)
class Line:
    """One lane of a result."""

    key: str
    label: str
    """Unique in its group."""
    style: int
    lane: LaneSummary
    runs: Sequence[Run] = ()

    @property
    def colour(self) -> int:
        """The number of its colour in the stylesheet."""
        return self.style % COLOURS

    @property
    def dash(self) -> tuple[int, ...]:
        """Lengths of strokes and gaps; empty for a solid line."""
        return DASHES[self.style % len(DASHES)]

    @property
    def is_baseline(self) -> bool:
        """Whether it has no engine."""
        return self.lane.lane == BASELINE

    @property
    def fault(self) -> str:
        """Why its figures must not be quoted, in a word or two; empty if they may be."""
        if self.lane.valid:
            return ""
        return "fell behind" if any(run.fell_behind for run in self.runs) else "void"

    @property
    def killed(self) -> bool:
        """Whether the study killed its engine, so that records come out twice."""
        return any(run.kill is not None for run in self.runs)

    @property
    def typical(self) -> Run | None:
        """The run with the median p50: a real run, unlike a median of curves."""
        known = [run for run in self.runs if is_number(run.result.p50_ms)]
        known.sort(key=lambda run: run.result.p50_ms or 0.0)
        return known[(len(known) - 1) // 2] if known else None


@dataclass(frozen=True)
class Group:
    """The lanes with the same work and rate: only these can be compared."""

    work: str
    rate_per_s: float | None
    lines: tuple[Line, ...]

    @property
    def title(self) -> str:
        """The work and the rate."""
        parts = [work_name(self.work)] if self.work else []
        if is_number(self.rate_per_s):
            parts.append(rate(self.rate_per_s))
        return ", ".join(parts)


def work_name(work: str) -> str:
    """Return the name of a work for a reader."""
    return WORKS.get(work, work)


def groups_of(result: Result) -> tuple[Group, ...]:
    """Group the lanes that can be compared, in the order of the result."""
    lanes = result.lanes
    together: dict[tuple[str, float | None], list[str]] = {}
    for key, lane in lanes.items():
        together.setdefault((lane.work, lane.rate_per_s), []).append(key)
    labels = {key: label for keys in together.values() for key, label in _labels(keys, lanes).items()}
    styles = _styles(lanes, labels, together.values())
    runs: dict[str, list[Run]] = {}
    for run in result.runs:
        runs.setdefault(run.key, []).append(run)
    return tuple(
        Group(
            work,
            rate_per_s,
            tuple(Line(key, labels[key], styles[key], lanes[key], tuple(runs.get(key, ()))) for key in keys),
        )
        for (work, rate_per_s), keys in together.items()
    )


def _labels(keys: Sequence[str], lanes: Mapping[str, LaneSummary]) -> dict[str, str]:
    titles = {key: lanes[key].title or lanes[key].lane or key for key in keys}
    often = Counter(titles.values())
    return {key: title if often[title] == 1 else f"{title} · {key}" for key, title in titles.items()}


def _styles(
    lanes: Mapping[str, LaneSummary], labels: Mapping[str, str], together: Iterable[Sequence[str]]
) -> dict[str, int]:
    """Return a style number per key: the same for a lane in all groups, or for a label if a group repeats a lane."""
    names = {key: lane.lane or key for key, lane in lanes.items()}
    if any(len({names[key] for key in keys}) < len(keys) for keys in together):
        names = {key: key if key in FIRST else labels[key] for key in lanes}
    others = [name for name in dict.fromkeys(names.values()) if name not in FIRST]
    numbers = {name: number for number, name in enumerate([*FIRST, *others])}
    return {key: numbers[name] for key, name in names.items()}
