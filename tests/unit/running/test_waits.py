"""What readers wait for, second by second."""

from collections.abc import Sequence
from typing import Any

from tailrace.engine import ReaderPosition
from tailrace.running.waits import POLLS, WaitHistory, Waits

from .fakes import at

QUIET = Waits()


def seen(polls: Sequence[Sequence[ReaderPosition]], every_s: float = 1.0) -> list[Waits]:
    history = WaitHistory()
    return [history.update(readers, number * every_s) for number, readers in enumerate(polls)]


def first(waits: Sequence[Waits]) -> int:
    return next(number for number, each in enumerate(waits) if each != QUIET)


def test_idle_readers_wait_for_nothing_that_is_there() -> None:
    idle = [[at("in-0", 7, waited_ms=1000 * second)] for second in range(60)]
    assert set(seen(idle)) == {QUIET}


def test_records_that_their_broker_does_not_send() -> None:
    polls = [[at("in-0", 7, end=9), at("in-1", second, end=second + 1)] for second in range(6)]
    waits = seen(polls)
    assert waits[2:] == [QUIET] + [Waits(stalled=("in-0",))] * 3
    assert waits[-1].for_broker == "in-0: the broker does not send the records"
    assert waits[-1].for_query == ""


def test_a_reader_that_gets_a_record_has_not_waited() -> None:
    polls = [[at("in-0", second // 2, end=99)] for second in range(30)]
    assert set(seen(polls)) == {QUIET}


def test_a_topic_is_named_if_all_of_its_partitions_wait() -> None:
    polls = [[at("in-0", end=5), at("in-1", end=6), at("other-0")] for _ in range(5)]
    assert seen(polls)[-1] == Waits(stalled=("in",))


def test_topics_of_the_same_name_on_two_clusters_are_distinguished() -> None:
    polls = [[at("in-0", end=5), at("in-0", source=1)] for _ in range(5)]
    assert seen(polls)[-1] == Waits(stalled=("in",))


def test_brokers_that_do_not_respond() -> None:
    polls = [[at("in-0", unanswered_ms=1000 * second), at("in-1", unanswered_ms=1000 * second)] for second in range(6)]
    waits = seen(polls)
    assert first(waits) == 3
    assert waits[-1] == Waits(silent=("in",))
    assert waits[-1].for_broker == "in: no broker responds"


def test_a_question_that_is_answered_late_is_no_silence_if_records_come() -> None:
    polls = [[at("in-0", second, unanswered_ms=1000 * second)] for second in range(20)]
    assert set(seen(polls)) == {QUIET}


def test_old_ends_report_no_stall() -> None:
    polls = [[at("in-0", 3, end=9, unanswered_ms=2500)] for _ in range(9)]
    assert set(seen(polls)) == {QUIET}


def test_a_query_that_does_not_take_the_next_record() -> None:
    waits = seen([[working(waited_ms=300 + 1000 * second)] for second in range(6)])
    assert first(waits) == POLLS
    assert waits[-1] == Waits(held=("in",))
    assert waits[-1].for_query == "in: one record or Python call has taken longer than 3 s"


def test_a_machine_that_slept_makes_no_query_slow() -> None:
    waits = seen([[working()], [working(waited_ms=60_000)], [working(waited_ms=61_000)], [working()]])
    assert set(waits) == {QUIET}


def test_a_query_that_falls_behind() -> None:
    """It takes ten records a second; a hundred come."""
    waits = seen([[working(10 * second, end=100 * second + 5)] for second in range(8)])
    assert first(waits) == 3
    assert waits[-1] == Waits(slow=("in",))
    assert waits[-1].for_query == "in: the query is slower than its input"


def test_a_record_that_takes_long_is_named_as_the_reason_for_a_backlog() -> None:
    polls = [
        [
            working(waited_ms=1000 * second, end=100 * second),
            working(10 * second, end=100 * second + 5, partition=1),
        ]
        for second in range(8)
    ]
    waits = seen(polls)
    assert waits[-1] == Waits(held=("in-0",), slow=("in-1",))
    assert waits[-1].for_query == (
        "in-0: one record or Python call has taken longer than 3 s; in-1: the query is slower than its input"
    )


def test_a_backlog_that_shrinks_is_not_slow() -> None:
    waits = seen([[working(100 * second, end=100_000 + 10 * second)] for second in range(30)])
    assert set(waits) == {QUIET}


def test_a_burst_that_is_read_at_once_is_not_slow() -> None:
    waits = seen([[working(1000 * second, end=1000 * second + 1500)] for second in range(30)])
    assert set(waits) == {QUIET}


def test_nobody_is_slow_while_the_brokers_are_silent() -> None:
    """The sink may wait for them."""
    polls = [[working(waited_ms=1000 * second, unanswered_ms=1000 * second)] for second in range(9)]
    assert seen(polls)[-1] == Waits(silent=("in",))


def test_partitions_that_no_task_reads_do_not_wait() -> None:
    polls = [[at("in-0", 3, end=9, is_read=False, waits_for="")] for _ in range(9)]
    assert set(seen(polls)) == {QUIET}


def working(offset: int = 5, *, partition: int = 0, **more: Any) -> ReaderPosition:
    return at(f"in-{partition}", offset, **({"waits_for": "downstream", "end": 9} | more))
