"""The terminal output of a benchmark: progress while it runs, and a table at the end."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tailrace.measure.measurement import Moment
from tailrace.report.result import LaneResult

_LINE_EVERY_S = 10.0
"""The interval between lines if the output is not a terminal."""
_PHASES = {"start": "starting", "warm-up": "warming up", "measure": "measuring", "drain": "last records"}
_WIDTH = 30


class Screen:
    """Live percentiles on standard error; standard output stays free for data."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._said_at = 0.0
        self._said = ""
        self._overall = ""

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, markup=False)

    def overall(self, text: str) -> None:
        """Set the line about the progress of the whole benchmark."""
        self._overall = text

    def show(self, title: str, moment: Moment) -> None:
        """Show the progress of a lane."""
        if self._live is not None:
            # Draw only if something changed: drawing takes CPU from the measurement.
            self._live.update(self._picture(title, moment), refresh=True)
            return
        now, state = time.monotonic(), f"{self._overall} {title} {moment.phase}"
        if state != self._said or now - self._said_at > _LINE_EVERY_S:
            self._said, self._said_at = state, now
            self.say(_in_one_line(title, moment))

    def done(self, title: str, result: LaneResult) -> None:
        """Print the figures of a lane."""
        figures = "   ".join(f"{name} {ms(result.percentile(name))}" for name in ("p50", "p95", "p99"))
        self.say(f"  {title:<26} {figures} ms")

    def _picture(self, title: str, moment: Moment) -> Group:
        row = Table.grid(padding=(0, 1))
        total = moment.total_s or None
        row.add_row(
            Text(f"  {title}"),
            ProgressBar(total=total, completed=min(moment.elapsed_s, moment.total_s), width=_WIDTH),
            Text(_where(moment)),
            Text(_live_figures(moment)),
        )
        return Group(Text(self._overall), row) if self._overall else Group(row)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def closing_table(lanes: Iterable[tuple[str, LaneResult]]) -> Table:
    """Return a table with all lanes side by side."""
    table = Table(
        title="From intended send to receipt, milliseconds",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    rows = []
    for title, lane in lanes:
        figures = (lane.p50_ms, lane.p95_ms, lane.p99_ms, lane.p999_ms, lane.max_ms)
        counts = (lane.samples, lane.lost, lane.duplicated)
        rows.append((title, *(ms(figure) for figure in figures), *(f"{count:,}" for count in counts)))
    # On a narrow terminal the titles wrap, never the figures.
    table.add_column("", justify="left", overflow="fold")
    for place, name in enumerate(("p50", "p95", "p99", "p99.9", "max", "samples", "lost", "repeated"), start=1):
        widest = max([len(name), *(len(row[place]) for row in rows)])
        table.add_column(name, justify="right", no_wrap=True, min_width=widest)
    for row in rows:
        table.add_row(*row)
    return table


def ms(value: float | None) -> str:
    """Format milliseconds with three significant figures."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _where(moment: Moment) -> str:
    progress = f" {moment.elapsed_s:.0f}/{moment.total_s:.0f} s" if moment.total_s else ""
    return f"{_PHASES[moment.phase]}{progress}"


def _live_figures(moment: Moment) -> str:
    now = moment.snapshot
    if now is None or now.p50_ms is None:
        return ""
    return f"now: p50 {ms(now.p50_ms)}   p95 {ms(now.p95_ms)}   p99 {ms(now.p99_ms)} ms"


def _in_one_line(title: str, moment: Moment) -> str:
    return f"  {title:<26} {_where(moment)}   {_live_figures(moment)}".rstrip()
