"""The rows of the report's tables: medians over the runs, and the worst value if it matters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tailrace.report.figures import is_number
from tailrace.report.lines import Group, Line
from tailrace.report.result import GapInterval, Result, Span

Parts = Mapping[str, float]


@dataclass(frozen=True)
class SpanRow:
    """The spans of a record's path, each percentile as the median over the runs."""

    line: Line
    spans: Mapping[str, Span]

    @property
    def medians(self) -> Parts:
        """The p50 of each span that has one."""
        return {name: span.p50 for name, span in self.spans.items() if span.p50 is not None}


@dataclass(frozen=True)
class DelayRow:
    """How well the load kept to its plan."""

    line: Line
    p50: float | None
    p99: float | None
    most: float | None
    planned_per_s: float | None
    least_per_s: float | None
    """The lowest rate of all runs."""


@dataclass(frozen=True)
class ResourceRow:
    """Cores and megabytes of each process."""

    line: Line
    processes: Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True)
class PauseRow:
    """The pauses at batch boundaries."""

    line: Line | None
    work: str
    pauses: Sequence[float]
    parts: Parts
    interval: GapInterval | None = None
    """What a study of checkpoints adds."""

    @property
    def middle(self) -> float | None:
        """The median pause."""
        return middle(self.pauses)

    @property
    def most(self) -> float | None:
        """The longest pause."""
        return max(self.pauses, default=None)


@dataclass(frozen=True)
class Matrix:
    """Lanes against works and rates."""

    columns: Sequence[Group]
    rows: Mapping[str, Mapping[int, Line]]
    """By the lane's title, then by the number of the column."""

    @property
    def works(self) -> list[tuple[str, int]]:
        """Each work with its number of columns. The columns of one work are adjacent."""
        counted: dict[str, int] = {}
        for group in self.columns:
            counted[group.work] = counted.get(group.work, 0) + 1
        return list(counted.items())

    def lowest(self, column: int) -> str | None:
        """Return the key with the lowest p50 of a column, among valid lanes with an engine."""
        known = [
            line
            for line in self.columns[column].lines
            if is_number(line.lane.p50_ms) and line.lane.valid and not line.is_baseline
        ]
        return min(known, key=lambda line: line.lane.p50_ms or 0.0).key if len(known) > 1 else None


def middle(values: Iterable[Any]) -> float | None:
    """Return the median of all numbers."""
    known = [value for value in values if is_number(value)]
    return float(median(known)) if known else None


def span_rows(lines: Iterable[Line]) -> list[SpanRow]:
    """Return the spans of every lane that has them."""
    rows = []
    for line in lines:
        measured = [run.spans_ms for run in line.runs if run.spans_ms]
        names = dict.fromkeys(name for spans in measured for name in spans)
        spans = {
            name: Span(
                p50=middle(spans[name].p50 for spans in measured if name in spans),
                p95=middle(spans[name].p95 for spans in measured if name in spans),
                p99=middle(spans[name].p99 for spans in measured if name in spans),
            )
            for name in names
        }
        if spans:
            rows.append(SpanRow(line, spans))
    return rows


def delay_rows(lines: Iterable[Line]) -> list[DelayRow]:
    """Return the publish delay of every lane that has it."""
    rows = []
    for line in lines:
        delays = [run.publish_delay_ms for run in line.runs if run.publish_delay_ms is not None]
        rates = [rate for rate in (run.achieved_rate_per_s for run in line.runs) if is_number(rate)]
        if not delays and not rates:
            continue
        greatest = [most for most in (delay.max for delay in delays) if is_number(most)]
        rows.append(
            DelayRow(
                line,
                p50=middle(delay.p50 for delay in delays),
                p99=middle(delay.p99 for delay in delays),
                most=max(greatest, default=None),
                planned_per_s=line.lane.rate_per_s,
                least_per_s=min(rates, default=None),
            )
        )
    return rows


def resource_rows(lines: Iterable[Line]) -> list[ResourceRow]:
    """Return processor and memory of every lane that has them."""
    rows = []
    for line in lines:
        used = [run.resources for run in line.runs if run.resources]
        names = dict.fromkeys(name for each in used for name in each)
        processes = {
            name: (
                middle(each[name].cpu_cores for each in used if name in each),
                middle(each[name].rss_mb for each in used if name in each),
            )
            for name in names
        }
        if processes:
            rows.append(ResourceRow(line, processes))
    return rows


def pause_rows(lines: Iterable[Line]) -> list[PauseRow]:
    """Return the pauses of every lane that has them."""
    rows = []
    for line in lines:
        boundaries = [each for run in line.runs for each in run.boundaries]
        pauses = [each.pause_ms for each in boundaries if is_number(each.pause_ms)]
        if pauses:
            parts = _medians([each.parts_ms for each in boundaries])
            rows.append(PauseRow(line, line.lane.work, pauses, parts))
    return rows


def gap_rows(result: Result, lines: Iterable[Line]) -> list[PauseRow]:
    """Return the intervals of a study of checkpoints."""
    by_key = {line.key: line for line in lines}
    return [
        PauseRow(
            by_key.get(each.key),
            each.work,
            [pause for pause in each.pauses_ms if is_number(pause)],
            {name: value for name, value in each.parts_ms.items() if is_number(value)},
            each,
        )
        for each in (result.gap.intervals if result.gap is not None else ())
    ]


def matrix_of(groups: Sequence[Group]) -> Matrix:
    """Arrange lanes against works and rates."""
    works = list(dict.fromkeys(group.work for group in groups))
    columns = sorted(groups, key=lambda group: (works.index(group.work), group.rate_per_s or 0))
    rows: dict[str, dict[int, Line]] = {}
    for number, group in enumerate(columns):
        for line in group.lines:
            rows.setdefault(line.label, {})[number] = line
    return Matrix(columns, rows)


def part_names(rows: Iterable[PauseRow]) -> list[str]:
    """Return the names of the parts of all pauses, in order."""
    return list(dict.fromkeys(name for row in rows for name in row.parts))


def _medians(parts: Sequence[Parts]) -> dict[str, float]:
    names = dict.fromkeys(name for each in parts for name in each)
    medians = {name: middle(each.get(name) for each in parts) for name in names}
    return {name: value for name, value in medians.items() if value is not None}
