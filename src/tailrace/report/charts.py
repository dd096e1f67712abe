"""The charts of the report as plain data. ``static/charts.js`` draws them, here and on any other page.

A chart is ``{"id", "x": {"scale", "label", ...}, "y": {"label", "low", "high"}, "series": [...], "marks": [...]}``.
The scale of x is ``percentile`` (by the number of nines), ``seconds``, or ``steps`` (positions with a name each); y is
logarithmic. A series has ``label, x, y, colour, dash, width``, and where set ``faint`` (a further run) and ``dots``. A
mark is a vertical line at ``x``, with a ``text`` if it needs one.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tailrace.report.figures import is_number, plain, rate, three_figures
from tailrace.report.lines import DASHES, Group, Line
from tailrace.report.result import Rates, Result, Run, Timeline

LEAST_MS = 0.001
"""A logarithmic axis has no zero; this is the resolution of a result."""
MOST_WITH_ALL_RUNS = 4
"""With more lanes in one chart, only the typical run of each is shown."""
SWEEP_TITLE = "Latency against the trigger interval"
REFERENCE = 2
"""The colour of a reference line."""


def percentile_chart(number: int, group: Group) -> dict[str, Any] | None:
    """Return latency by percentile: a line per lane, with its other runs thin behind it."""
    series: list[dict[str, Any]] = []
    for line in group.lines:
        typical = line.typical
        shown = line.runs if len(group.lines) <= MOST_WITH_ALL_RUNS else [typical]
        for run in shown:
            curve = _curve(run)
            if curve:
                style = {"width": 2} if run is typical else {"width": 1, "faint": True}
                series.append(_series(line.label, *zip(*curve, strict=True), line=line) | style)
    if not series:
        return None
    # The last series is drawn on top.
    series.sort(key=lambda each: not each.get("faint"))
    text = "; ".join(_curve_in_words(line) for line in group.lines if _curve(line.typical))
    return {
        "id": f"chart-percentiles-{number}",
        "alt": f"Latency by percentile, {group.title}. {text}.",
        "x": {"scale": "percentile", "label": "percentile"},
        "y": {"label": "latency, ms"},
        "series": series,
    }


def timeline_charts(number: int, group: Group) -> list[dict[str, Any]]:
    """Return latency over time: a chart per lane, all on the same scale."""
    charts = []
    for place, line in enumerate(group.lines):
        run = line.typical
        if run is None or run.timeline is None or not any(is_number(value) for value in run.timeline.max_ms):
            continue
        charts.append(_timeline(f"chart-time-{number}-{place}", line, run, run.timeline))
    values = [value for chart in charts for each in chart["series"] for value in each["y"] if value is not None]
    for chart in charts:
        chart["y"] |= {"low": min(values), "high": max(values)}
    return charts


def sweep_chart(result: Result, lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return latency against the trigger interval, with the other lanes as level lines."""
    by_key = {line.key: line for line in lines}
    points = [(each.trigger_ms, by_key[each.key]) for each in result.sweep or () if each.key in by_key]
    if not points:
        return None
    points.sort(key=lambda point: point[0])
    swept = {line.key for _, line in points}
    names = [plain(every) for every, _ in points]
    series = [
        _figures("p50", [line.lane.p50_ms for _, line in points], 0),
        _figures("p95", [line.lane.p95_ms for _, line in points], 3),
        _figures("p99", [line.lane.p99_ms for _, line in points], 1),
        _figures("max", [line.lane.max_ms for _, line in points], 4),
    ]
    for line in lines:
        level = line.lane.p50_ms
        if line.key not in swept and is_number(level):
            flat = _figures(f"{line.label}, p50", [level] * len(points), REFERENCE)
            series.append(flat | {"dash": [2, 3], "width": 1, "dots": False})
    return _steps("chart-sweep", SWEEP_TITLE, names, "trigger every, ms", series)


def ladder_chart(result: Result, lines: Sequence[Line]) -> dict[str, Any] | None:
    """Return p99 against the rate: a line per lane, and the bound."""
    rates = result.rates or Rates()
    ladders = [each.ladder for each in rates.lanes.values()]
    steps = sorted({rung.rate_per_s for ladder in ladders for rung in ladder})
    if not steps:
        return None
    by_key = {line.key: line for line in lines}
    series = []
    for ladder in ladders:
        known = {rung.rate_per_s: by_key[rung.key] for rung in ladder if rung.key in by_key}
        if known:
            line = next(iter(known.values()))
            p99 = [known[step].lane.p99_ms if step in known else None for step in steps]
            series.append(_series(line.label, range(len(steps)), p99, line=line) | {"width": 2, "dots": True})
    bound = rates.bound_ms
    if is_number(bound):
        level = _figures(f"bound, {plain(bound)} ms", [bound] * len(steps), REFERENCE)
        series.append(level | {"dash": [2, 3], "width": 1, "dots": False})
    return _steps("chart-ladder", "p99 against the rate", [rate(step) for step in steps], "records per second", series)


def _timeline(name: str, line: Line, run: Run, steps: Timeline) -> dict[str, Any]:
    start, step = steps.start_s, steps.step_s
    x = [round(start + step * place, 3) for place in range(len(steps.max_ms))]
    greatest = max(value for value in steps.max_ms if is_number(value))
    boundaries = [each.at_s for each in run.boundaries if is_number(each.at_s)]
    series = [
        _series("max", x, steps.max_ms, line=line) | {"dash": [1, 3], "width": 1.5},
        _series("p99", x, steps.p99_ms, line=line) | {"dash": [5, 3], "width": 1.5},
        _series("p50", x, steps.p50_ms, line=line) | {"dash": [], "width": 2},
    ]
    at = x[steps.max_ms.index(greatest)]
    inside = sum(start <= at_s <= x[-1] + step for at_s in boundaries)
    return {
        "id": name,
        "title": line.label,
        "note": _which_run(line, run),
        "boundaries": inside,
        "alt": f"Latency over time, {line.label}: the greatest is {three_figures(greatest)} ms at {plain(at)} s; "
        f"{inside} batch boundaries.",
        "x": {"scale": "seconds", "label": "seconds into the window", "low": x[0], "high": x[-1] + step},
        "y": {"label": "latency, ms"},
        "series": series,
        "marks": [{"x": round(at_s, 3)} for at_s in boundaries] + _kills(run),
    }


def _kills(run: Run) -> list[dict[str, Any]]:
    at = run.kill.at_s if run.kill is not None else None
    return [{"x": at, "text": "killed"}] if is_number(at) else []


def _which_run(line: Line, run: Run) -> str:
    if len(line.runs) < 2:
        return ""
    return f"run {run.run} of {len(line.runs)}, the one with the median p50"


def _steps(name: str, alt: str, names: list[str], label: str, series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": name,
        "alt": f"{alt}. The figures are in the table below.",
        "x": {"scale": "steps", "label": label, "names": names},
        "y": {"label": "latency, ms"},
        "series": series,
    }


def _series(label: str, x: Iterable[float], y: Iterable[Any], *, line: Line) -> dict[str, Any]:
    shown = [_shown(value) for value in y]
    return {"label": label, "x": list(x), "y": shown, "colour": line.colour, "dash": list(line.dash)}


def _figures(label: str, y: Sequence[Any], style: int) -> dict[str, Any]:
    return {
        "label": label,
        "x": list(range(len(y))),
        "y": [_shown(value) for value in y],
        "colour": style,
        "dash": list(DASHES[style]),
        "width": 2,
        "dots": True,
    }


def _shown(value: Any) -> float | None:
    return max(round(float(value), 3), LEAST_MS) if is_number(value) else None


def _curve(run: Run | None) -> list[tuple[float, float]]:
    """Return the percentiles that a scale of nines can show: from 50 to below 100."""
    points = run.percentiles if run is not None else ()
    return [(x, y) for x, y in points if is_number(x) and is_number(y) and 50 <= x < 100 and math.isfinite(y)]


def _curve_in_words(line: Line) -> str:
    curve = _curve(line.typical)
    (low, first), (high, last) = curve[0], curve[-1]
    return (
        f"{line.label}: {three_figures(first)} ms at {plain(low)} percent, "
        f"{three_figures(last)} ms at {plain(high)} percent"
    )
