import io
import time

import pytest
from rich.console import Console

from tailrace.measure.measurement import Moment
from tailrace.measure.screen import Screen, closing_table, ms
from tailrace.measure.traffic.probe import Snapshot
from tailrace.report.result import LaneResult

NOW = Snapshot(5000, 1000, 0.712, 1.5, 12.34, ready=True)
FIGURES = LaneResult(0.712, 12.34, 1234.5, None, 2000.0, samples=120_000, lost=0, duplicated=3)


def plain() -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    return Screen(Console(file=out, width=200)), out


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0.00"), (0.712, "0.71"), (9.994, "9.99"), (12.34, "12.3"), (99.9, "99.9"), (1234.5, "1,234")],
)
def test_milliseconds_have_three_significant_figures(value: float | None, text: str) -> None:
    assert ms(value) == text


def test_without_a_terminal_a_phase_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    screen, out = plain()
    with screen:
        for elapsed in range(8):
            screen.show("real time", Moment("measure", float(elapsed), 60.0, NOW))
            at[0] += 1
        screen.show("real time", Moment("drain", 0.0, 0.0, NOW))
        at[0] += 11
        screen.show("real time", Moment("drain", 0.0, 0.0, None))
    lines = out.getvalue().splitlines()
    assert [line.split("   ")[0].split() for line in lines if "measuring" in line] == [["real", "time"]]
    assert "measuring 0/60 s   now: p50 0.71   p95 1.50   p99 12.3 ms" in lines[0]
    assert len(lines) == 3, "another after ten seconds"
    assert lines[2].rstrip() == lines[2]
    assert lines[2].endswith("last records")


def test_the_same_phase_of_the_next_run_has_its_own_line() -> None:
    screen, out = plain()
    for number in (1, 2):
        screen.overall(f"run {number} of 2")
        screen.show("real time", Moment("start", 0.0, 0.0, None))
    assert out.getvalue().count("starting") == 2


def test_figures_are_shown_after_each_lane() -> None:
    screen, out = plain()
    screen.done("real time", FIGURES)
    assert out.getvalue().split() == ["real", "time", "p50", "0.71", "p95", "12.3", "p99", "1,234", "ms"]


def test_text_is_printed_without_markup() -> None:
    screen, out = plain()
    screen.say("folder [bold]x[/] 12")
    assert out.getvalue() == "folder [bold]x[/] 12\n"


def test_a_terminal_shows_progress_and_live_percentiles() -> None:
    out = io.StringIO()
    console = Console(file=out, width=160, force_terminal=True)
    with Screen(console) as screen:
        screen.overall("run 3 of 9")
        screen.show("real time", Moment("warm-up", 5.0, 15.0, NOW))
    for words in ("run 3 of 9", "warming up 5/15 s", "now: p50 0.71"):
        assert words in out.getvalue()


def test_the_closing_table_has_every_lane_with_its_counts() -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(closing_table([("real time", FIGURES), ("micro-batch", FIGURES)]))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert rows[1] == ["p50", "p95", "p99", "p99.9", "max", "samples", "lost", "repeated"]
    assert rows[2] == ["real", "time", "0.71", "12.3", "1,234", "-", "2,000", "120,000", "0", "3"]
    assert rows[3][0] == "micro-batch"
