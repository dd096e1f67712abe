"""The measured figures in the docs: the README's table, that of stops and the page of all committed results."""

import json
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tailrace.measure.lanes.spark import SPARK_LANES
from tailrace.measure.python_work import FUNCTIONS
from tailrace.measure.screen import ms
from tailrace.report import read_result
from tailrace.report.figures import count, plain, seconds, three_figures
from tailrace.report.lines import Group, Line, groups_of
from tailrace.report.picture import in_words, percentile_svg
from tailrace.report.result import PERCENTILES, GapInterval, LaneSummary, Machine, Result

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
ARTICLE = RESULTS / "article" / "result.json"
PYTHON = RESULTS / "python" / "result.json"
STOPS = RESULTS / "stops.json"
WATCH = RESULTS / "watch.json"
PICTURE = ROOT / "docs" / "benchmark.svg"
PAGE = ROOT / "docs" / "results.md"
LANES = ("floor", "microbatch", "realtime")
HEAD = ("| | p50 | p95 | p99 | p99.9 | samples | lost |", "|---|---|---|---|---|---|---|")
STUDIES = {
    "article": ("The published setting", "Its warm-up is short and its window has no batch boundary, both on purpose."),
    "full": ("With all rules of the method", "Long warm-up, batch boundaries in every window, several runs."),
    "sweep": ("How much smaller micro-batches help", "Compared with real time and Spark's old continuous trigger."),
    "gap": ("What a checkpoint costs in real time", "The pause at a boundary, and what is replayed after a kill."),
    "engines": ("Other engines at the same work", "With defaults and tuned, on the same broker, in the same run."),
    "engines-warm": (
        "The keyed aggregate after a long warm-up",
        "The same lanes at 2,000 events a second, after their engines have compiled the code.",
    ),
    "shared-tasks": (
        "Partitions that share tasks",
        "24 partitions, read by one task each and by four tasks in all. Five runs of each, alternately.",
    ),
    "python": (
        "Python functions",
        "Every kind in real time against a built-in expression. Two runs, the second in reverse order.",
    ),
    "python-rates": (
        "Python functions at rising rates",
        "One process of each engine for all rates, with other engines. If the load missed its plan, no CPU was left.",
    ),
    "python-limit": (
        "The highest rates of Python functions",
        "The same in another run, without the other engines, up to the limit of the machine.",
    ),
    "python-slow": (
        "Python functions at a low rate",
        "Each call has one row. The lanes of the next table ran on the same machine at the same time.",
    ),
    "python-slow-batches": (
        "Functions on batches at a low rate",
        "The second part of the same measurement, with its own built-in expression.",
    ),
}
"""The committed results, by folder, in the order of the page."""

_NAMES = re.compile(r"@?[a-z]*_?udf|mapIn[A-Z][a-z]+")
_AS_CODE = r"`\g<0>`"


def load(folder: str) -> Result:
    """Read a committed result."""
    return read_result(RESULTS / folder / "result.json")


def readme(text: str) -> str:
    """Return the README with the figures of the committed results."""
    text = _between(text, f"<!-- measured: {ARTICLE.relative_to(ROOT)} -->", _figures(_article()))
    return _between(text, f"<!-- measured: {PYTHON.relative_to(ROOT)} -->", _python_figures(_valid(PYTHON)))


def delivery(text: str) -> str:
    """Return the page about delivery with the measured stops."""
    return _between(text, f"<!-- measured: {STOPS.relative_to(ROOT)} -->", _stops())


def _stops() -> str:
    """Return the table of the stops under load; a row without records has only times."""
    report = json.loads(STOPS.read_text())
    head = ["query and mode", "stops", "median", "longest", "records", "per second", "lost", "repeated"]
    rows = [
        [
            name,
            count(each["count"]),
            f"{each['median']:.2f} s",
            f"{each['longest']:.2f} s",
            *(count(each[key]) if key in each else "" for key in ("records", "per_second", "lost", "repeated")),
        ]
        for name, each in report["seconds"].items()
    ]
    return "\n" + _table(head, rows)


def _between(text: str, begin: str, figures: str) -> str:
    end = "<!-- end of measured -->"
    if text.count(begin) != 1:
        raise ValueError(f"expected one {begin} in the page")
    first = text.index(begin)
    indent = text[text.rindex("\n", 0, first) + 1 : first]
    return text[:first] + f"{begin}\n{figures}\n{indent}" + text[text.index(end, first) :]


def picture() -> str:
    """Return the README's picture."""
    return percentile_svg(_article(), LANES)


def _article() -> Result:
    return _valid(ARTICLE)


def _valid(path: Path) -> Result:
    result = load(path.parent.name)
    if not result.valid:
        raise ValueError(f"{path} is void: {result.verdict}")
    return result


def _python_figures(result: Result) -> str:
    """Return the sentence of the README that compares each kind of Python function with a built-in expression."""
    rate = result.settings["rate_per_s"]
    kinds = {lane.name: FUNCTIONS[lane.runs.function].title for lane in SPARK_LANES if lane.runs.function}
    figures = [
        f"{_NAMES.sub(_AS_CODE, kinds[lane.lane])} {ms(lane.p50_ms)} and {ms(lane.p99_ms)}"
        for lane in result.lanes.values()
    ]
    text = f"Milliseconds at {count(rate)} records a second, p50 and p99: {', '.join(figures[:-1])}, {figures[-1]}."
    return textwrap.fill(text, 120, initial_indent="  ", subsequent_indent="  ")


def _figures(result: Result) -> str:
    """Return the sentence about the load, the table, the ratios and the picture."""
    settings, lanes = result.settings, result.lanes
    cores = result.machine.cores if result.machine is not None else None
    said = (
        f"{settings['rate_per_s']:,.0f} records a second of {settings['payload_bytes']} bytes, from Kafka through a "
        f"PySpark pipeline to Kafka, on a machine with {cores} cores that also ran the broker, "
        "the load and the probe. Milliseconds from the intended send time of a record until an ordinary consumer has "
        "its result:"
    )
    titles = {key: f"**{lanes[key].title}**" if key == "realtime" else lanes[key].title for key in LANES}
    rows = [_row(title, lanes[key]) for key, title in titles.items()]
    times = {
        each.percentile: f"{each.median:,.0f} times"
        for each in result.ratios
        if (each.slow, each.fast) == ("microbatch", "realtime")
    }
    ratios = (
        f"Micro-batch takes {times['p50']} as long as real time at p50, {times['p95']} at p95 "
        f"and {times['p99']} at p99."
    )
    shown = f"![Latency by percentile. {in_words(result, LANES)}]({PICTURE.relative_to(ROOT)})"
    return "\n".join([*textwrap.wrap(said, 120), "", *HEAD, *rows, "", *textwrap.wrap(ratios, 120), "", shown])


def _row(title: str, lane: LaneSummary) -> str:
    figures = [ms(lane.percentile(name)) for name in PERCENTILES]
    return f"| {title} | {' | '.join(figures)} | {lane.samples:,} | {lane.lost} |"


def results_page() -> str:
    """Return the page of every committed result, with its origin and its figures."""
    head = (
        "# Results\n\n`tailrace bench` measured these results. `benchmarks/results/` has the `result.json` and the "
        "histograms of each, so that you can check them. "
        "`tailrace bench report benchmarks/results/NAME` renders a result as a page with charts. "
        "[How the benchmark measures](concepts/benchmark-method.md), [how to run it yourself](guide/benchmark.md). "
        "Figures are milliseconds from the intended send time of a record until an ordinary consumer has its result. "
        "A ratio is the latency of a lane divided by that of real time (for Python functions by that of the five "
        "settings, if they were measured). There is no ratio if a run is void. "
        "Compare lanes of one table only: this machine is shared, and the same lane differs from hour to hour.\n"
    )
    return head + "".join(_section(folder, *STUDIES[folder]) for folder in STUDIES) + _watch_section()


def _watch_section() -> str:
    """Return how soon changes of topics and stalls are noticed, and how many queries were accused of nothing."""
    report = json.loads(WATCH.read_text())
    head = (
        "\n## How soon changes are noticed\n\n`make soak-watch` measured these seconds, from before the change on. "
        f"{report['machine']['cpu_count']} cores also ran the broker and the tests "
        "(`benchmarks/results/watch.json`).\n\n"
    )
    rows = [
        [name, count(each["count"]), three_figures(each["median"]), three_figures(each["longest"])]
        for name, each in sorted(report["seconds"].items())
    ]
    text = head + _table(["", "times", "median", "longest"], rows)
    for name, each in report.get("runs", {}).items():
        kinds = ", ".join(f"{number} with {kind}" for kind, number in sorted(each["kinds"].items()))
        text += f"\n{count(each['count'])} {name}: {kinds}.\n"
    return text


def _section(folder: str, title: str, about: str) -> str:
    result = load(folder)
    if result.gap is not None:
        tables = _gap_table(result.gap.intervals)
    else:
        tables = "\n".join(_group_table(result, group) for group in groups_of(result))
    verdict = "" if result.valid else "\nVoid: " + "; ".join(result.verdict) + "\n"
    return f"\n## {title}\n\n{about}\n\n{_origin(result)}\n\n{tables}{verdict}"


def _origin(result: Result) -> str:
    machine, settings = result.machine or Machine(), result.settings
    parts = [
        f"`{result.command}`",
        (result.started or "")[:10],
        f"commit {(result.commit or '')[:7]}",
        f"{machine.cpu}, {machine.cores} cores, {plain(machine.memory_gib)} GiB",
        f"warm-up {plain(settings['warmup_s'])} s",
        f"window {plain(settings['seconds'])} s",
        f"{settings['runs']} run{'s' if settings['runs'] != 1 else ''} of each lane",
        f"took {seconds(result.took_s)}",
    ]
    return ", ".join(parts) + "."


def _group_table(result: Result, group: Group) -> str:
    several = result.settings["runs"] > 1
    compared = ("p50", "p99") if result.ratios else ()
    head = ["", *PERCENTILES, *(f"{name} ratio" for name in compared), "engine cores", "samples"]
    rows = [
        [
            line.label + (f" ({line.fault})" if line.fault else ""),
            *(_percentile(line, name, several=several) for name in PERCENTILES),
            *(_ratio(result, line.key, name) for name in compared),
            _cores(line),
            count(line.lane.samples),
        ]
        for line in group.lines
    ]
    return f"### {group.title}\n\n" + _table(head, rows)


def _percentile(line: Line, name: str, *, several: bool) -> str:
    value = line.lane.percentile(name)
    low, high = line.lane.spread.get(PERCENTILES[name]) or (None, None)
    if several and value is not None and low is not None:
        return f"{three_figures(value)} ({three_figures(low)} to {three_figures(high)})"
    return three_figures(value)


def _ratio(result: Result, key: str, percentile: str) -> str:
    for each in result.ratios:
        if each.slow == key and each.percentile == percentile:
            return three_figures(each.median)
    return "1" if any(each.fast == key for each in result.ratios) else ""


def _cores(line: Line) -> str:
    used = [run.resources["engine"].cpu_cores or 0.0 for run in line.runs if "engine" in run.resources]
    return f"{median(used):.2f}" if used else ""


def _gap_table(intervals: Sequence[GapInterval]) -> str:
    names = list(dict.fromkeys(name for each in intervals for name in each.parts_ms))
    head = ["work", "checkpoint every", "pause", "longest", *names, "overhead", "replayed", "silent after a kill"]
    rows = [
        [
            each.work,
            f"{each.checkpoint_every_s} s",
            three_figures(median(each.pauses_ms)),
            three_figures(max(each.pauses_ms)),
            *(three_figures(each.parts_ms.get(name)) for name in names),
            f"{each.overhead_percent} %",
            f"{count(each.replay_records)} of at most {count(each.replay_bound_records)}",
            seconds(each.recovery_s),
        ]
        for each in intervals
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
