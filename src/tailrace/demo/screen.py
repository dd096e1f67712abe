"""What the demo shows while it runs, and at the end."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tailrace.demo.lanes import Moment
from tailrace.latency.lane import LaneResult

_LINE_EVERY_S = 10.0
"""Where the output is no terminal, a line so often instead of a picture that moves."""

TITLES = {"floor": "Kafka alone", "realtime": "real time", "microbatch": "micro-batch"}
_PHASES = {"start": "starting", "warm-up": "warming up", "measure": "measuring", "drain": "last records"}


class Screen:
    """Live percentiles on standard error; standard output stays free for data."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._said_at = 0.0
        self._said = ""

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, highlight=False, markup=False)

    def show(self, lane: str, moment: Moment) -> None:
        """Where a lane is now."""
        text = _in_one_line(lane, moment)
        if self._live is not None:
            self._live.update(text)
            return
        now, state = time.monotonic(), f"{lane} {moment.phase}"
        if state != self._said or now - self._said_at > _LINE_EVERY_S:
            self._said, self._said_at = state, now
            self.say(text)

    def done(self, lane: str, result: LaneResult) -> None:
        """A lane's figures, as soon as they are known."""
        self.say(f"  {TITLES[lane]:<12} p50 {ms(result.p50_ms)}   p95 {ms(result.p95_ms)}   p99 {ms(result.p99_ms)} ms")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()


def closing_table(results: dict[str, LaneResult], microbatch_every: str) -> Table:
    """All lanes side by side."""
    table = Table(
        title="From intended send to receipt, milliseconds",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    table.add_column("", justify="left", no_wrap=True)
    for name in ("p50", "p95", "p99", "p99.9", "max", "samples", "lost", "repeated"):
        table.add_column(name, justify="right", no_wrap=True)
    for lane, result in results.items():
        title = TITLES[lane] + (f" {microbatch_every}" if lane == "microbatch" else "")
        figures = [result.p50_ms, result.p95_ms, result.p99_ms, result.p999_ms, result.max_ms]
        counts = [result.samples, result.lost, result.duplicated]
        table.add_row(title, *(ms(figure) for figure in figures), *(f"{count:,}" for count in counts))
    return table


def ms(value: float | None) -> str:
    """Milliseconds with three figures that mean something."""
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _in_one_line(lane: str, moment: Moment) -> str:
    progress = f" {moment.elapsed_s:.0f}/{moment.total_s:.0f} s" if moment.total_s else ""
    text = f"  {TITLES[lane]:<12} {_PHASES[moment.phase]}{progress}"
    if moment.snapshot is not None and moment.snapshot.p50_ms is not None:
        now = moment.snapshot
        text += f"   now: p50 {ms(now.p50_ms)}   p95 {ms(now.p95_ms)}   p99 {ms(now.p99_ms)} ms"
    return text
