"""Test when a command of a page counts as successful. Nothing is started here."""

import pytest
from doc_blocks import ended_well

BENCH = ["tailrace", "bench", "--profile", "quick"]
RUN = ["tailrace", "run", "shop.py", "--once"]
LATE = "void: floor, run 1: the load missed its plan: one record in a hundred was more than 40 ms late"
SLOW = "void: realtime, run 1: the load missed its plan: 150 records/s instead of 200"
BEHIND = "void: realtime, run 1: the lane fell behind: latency grew by 30 ms over the window"
LOST = "void: realtime, run 1: 3 of 1,000 records never came out"
ABSENT = "void: quix could not be set up: no network"


@pytest.mark.parametrize(
    ("words", "code", "printed", "is_good"),
    [
        (BENCH, 0, "report  quick/report.html", True),
        (BENCH, 1, LATE, True),
        (BENCH, 1, f"{LATE}\n{BEHIND}", True),
        (BENCH, 1, f"report  quick/report.html\n{LATE}\n{SLOW}\n", True),
        (BENCH, 1, f"{LATE}\n{LOST}", False),
        (BENCH, 1, f"{LATE}\n{ABSENT}", False),
        (BENCH, 1, LOST, False),
        (BENCH, 1, "error: lane realtime ended by itself", False),
        (BENCH, 1, "", False),
        (BENCH, 2, LATE, False),
        (BENCH, -9, LATE, False),
        (RUN, 0, "", True),
        (RUN, 1, LATE, False),
    ],
)
def test_a_benchmark_may_be_void_only_if_the_machine_was_too_busy(
    words: list[str], code: int, printed: str, is_good: bool
) -> None:
    assert ended_well(words, code, ["report  quick/report.html"], printed) is is_good


@pytest.mark.parametrize(("code", "is_good"), [(0, False), (1, True), (2, True)])
def test_a_command_with_an_expected_error_must_fail(code: int, is_good: bool) -> None:
    assert ended_well(RUN, code, ["error: pipeline 'shop' has 2 sources"], "") is is_good
