"""The percentile plot of a result as one SVG picture, for pages without scripts.

It contains the colours for light and dark, the figures, a title and a description. The colours come from the report's
stylesheet and are written out, because some viewers of SVG do not support variables.
"""

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources

from tailrace.report.figures import is_number, three_figures
from tailrace.report.lines import Line, groups_of
from tailrace.report.result import Result

WIDTH, HEIGHT = 904, 414
LEFT, RIGHT, TOP, BOTTOM = 68, 644, 52, 378
"""The edges of the plot. The names of the lines are to the right of it."""
LEAST_BETWEEN = 40
"""The least distance between two names."""
PERCENTILES = (50.0, 90.0, 99.0, 99.9, 99.99, 99.999)
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_INKS = ("ground", "ink", "muted", "rule")

Curve = list[tuple[float, float]]
"""Percentile and milliseconds."""


def percentile_svg(result: Result, keys: Sequence[str]) -> str:
    """Draw latency by percentile: a line for each lane, the run with the median p50, on logarithmic axes.

    Args:
        result: The result.
        keys: The lanes to draw, by their keys in the result.

    Raises:
        ValueError: A lane is not in the result, or has no percentiles to draw.
    """
    known = {line.key: line for group in groups_of(result) for line in group.lines}
    curves = {key: _curve(known.get(key)) for key in keys}
    lacking = [key for key, curve in curves.items() if not curve]
    if lacking or not curves:
        raise ValueError(f"no percentiles of {', '.join(lacking) or 'any lane'}")
    lines = [known[key] for key in curves]
    plot = _Plot(list(curves.values()))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        '<title id="title">Latency by percentile</title>',
        f'<desc id="desc">{escape(in_words(result, keys))}</desc>',
        f"<style>{_style({line.colour for line in lines})}</style>",
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        f'<text class="strong" x="{LEFT}" y="24">Latency by percentile</text>',
        f'<text class="note" x="{LEFT}" y="41">from intended send to receipt, logarithmic</text>',
        *plot.axes(),
        *(plot.line(line, curves[line.key]) for line in lines),
        *plot.names(lines, list(curves.values())),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def in_words(result: Result, keys: Sequence[str]) -> str:
    """Describe the picture in words."""
    known = {line.key: line for group in groups_of(result) for line in group.lines}
    return "; ".join(f"{known[key].label}: {_figures(known[key])}" for key in keys) + "."


class _Plot:
    """The scales of the plot."""

    def __init__(self, curves: Sequence[Curve]) -> None:
        self._nines = (_nines(50.0), max(_nines(percent) for curve in curves for percent, _ in curve))
        values = [ms for curve in curves for _, ms in curve]
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self._decades = (low, max(high, low + 1))

    def x(self, percent: float) -> float:
        low, high = self._nines
        return round(LEFT + (RIGHT - LEFT) * (_nines(percent) - low) / max(high - low, 1e-9), 1)

    def y(self, ms: float) -> float:
        low, high = self._decades
        return round(BOTTOM - (BOTTOM - TOP) * (math.log10(ms) - low) / (high - low), 1)

    def axes(self) -> list[str]:
        drawn = []
        for decade in range(self._decades[0], self._decades[1] + 1):
            y = self.y(10.0**decade)
            drawn.append(f'<path class="rule" d="M{LEFT} {y}H{RIGHT}"/>')
            drawn.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{_power_of_ten(decade)}</text>')
        for percent in PERCENTILES:
            if _nines(percent) <= self._nines[1] + 1e-9:
                x = self.x(percent)
                drawn.append(f'<path class="rule" d="M{x} {TOP}V{BOTTOM}"/>')
                drawn.append(f'<text class="tick middle" x="{x}" y="{BOTTOM + 20}">p{percent:g}</text>')
        # The rules are too faint for the foot of the plot.
        drawn.append(f'<path class="edge" d="M{LEFT} {BOTTOM}H{RIGHT}"/>')
        return drawn

    def line(self, line: Line, curve: Curve) -> str:
        path = "L".join(f"{self.x(percent)} {self.y(ms)}" for percent, ms in curve)
        dashes = f' stroke-dasharray="{" ".join(map(str, line.dash))}"' if line.dash else ""
        return f'<path class="line lane-{line.colour}" d="M{path}"{dashes}/>'

    def names(self, lines: Sequence[Line], curves: Sequence[Curve]) -> list[str]:
        """Draw the name and figures of each line at its end; names that would overlap move apart."""
        ends = sorted(zip((self.y(curve[-1][1]) for curve in curves), range(len(lines)), strict=True))
        room = BOTTOM - 12.0
        places: list[float] = []
        for y, _ in ends:
            places.append(max(y, places[-1] + LEAST_BETWEEN if places else y, TOP + 12))
        for number in range(len(places) - 1, -1, -1):
            places[number] = min(places[number], room)
            room = places[number] - LEAST_BETWEEN
        drawn = []
        for place, (y, number) in zip(places, ends, strict=True):
            line, x = lines[number], self.x(curves[number][-1][0])
            drawn.append(f'<path class="lead lane-{line.colour}" d="M{x + 3} {y}L{RIGHT + 12} {place:.1f}"/>')
            drawn.append(
                f'<text class="name name-{line.colour}" x="{RIGHT + 16}" y="{place:.1f}">{escape(line.label)}</text>'
            )
            drawn.append(f'<text class="note" x="{RIGHT + 16}" y="{place + 16:.1f}">{escape(_figures(line))}</text>')
        return drawn


def _curve(line: Line | None) -> Curve:
    """Return the percentiles that the axes can show: from 50 to below 100, above zero."""
    points = line.typical.percentiles if line is not None and line.typical is not None else ()
    return [(x, y) for x, y in points if is_number(x) and is_number(y) and 50 <= x < 100 and y > 0]


def _nines(percent: float) -> float:
    return -math.log10(1 - percent / 100)


def _figures(line: Line) -> str:
    return f"p50 {three_figures(line.lane.p50_ms)} ms, p99 {three_figures(line.lane.p99_ms)} ms"


def _power_of_ten(decade: int) -> str:
    return f"{10 ** (decade - 3):,} s" if decade >= 3 else f"{10.0**decade:g} ms"


def _style(lanes: set[int]) -> str:
    light, dark = _palettes()
    shapes = (
        f"text{{font-family:{_FONT};font-size:13px}}.strong,.name{{font-weight:600}}.strong{{font-size:15px}}"
        ".note,.tick{font-size:12px}.end{text-anchor:end}.middle{text-anchor:middle}"
        "path{fill:none}.line{stroke-width:2.5;stroke-linejoin:round;stroke-linecap:round}"
    )
    return f"{shapes}{_colours(light, lanes)}@media (prefers-color-scheme:dark){{{_colours(dark, lanes)}}}"


def _colours(palette: Mapping[str, str], lanes: set[int]) -> str:
    ground, ink, muted, rule = (palette[name] for name in _INKS)
    rules = [f".ground{{fill:{ground}}}text{{fill:{ink}}}.note,.tick{{fill:{muted}}}"]
    rules.append(f".rule{{stroke:{rule}}}.edge{{stroke:{muted}}}")
    for lane in sorted(lanes):
        colour = palette[f"lane-{lane}"]
        rules.append(f".lane-{lane}{{stroke:{colour}}}.name-{lane}{{fill:{colour}}}")
    return "".join(rules)


@cache
def _palettes() -> tuple[dict[str, str], dict[str, str]]:
    """Return the light and the dark palette of the report's stylesheet."""
    text = resources.files(__package__).joinpath("static", "report.css").read_text(encoding="utf-8")
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", block)) for block in text.split(":root {")[1:3])
    return light, dark
