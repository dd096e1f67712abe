"""Which batches of a query are remembered, and when Spark is asked for them."""

from typing import Any

import pytest

from tailrace.pipeline import Mode
from tailrace.running import progress
from tailrace.running.ending import Ending
from tailrace.running.progress import Progress

from .fakes import FakeControl, FakeQuery


class CountingQuery(FakeQuery):
    """A query that counts the questions for its progress."""

    asked = 0

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's own name
        self.asked += 1
        return super().recentProgress


def progress_of(query: FakeQuery, control: FakeControl | None) -> Progress:
    given: Any = (query, control)
    return Progress(given[0], Ending(given[0], Mode.REALTIME, given[1], 10.0))


def test_batches_that_spark_has_forgotten_are_remembered() -> None:
    query = FakeQuery(1, 2, 3)  # two rows in each batch
    noted = progress_of(query, FakeControl())
    for _ in range(4):
        noted.note()
    query._batches = query._batches[2:]
    noted.note()
    assert (noted.batches, noted.input_rows) == (3, 6)


def test_a_query_that_has_ended_is_asked_once_more() -> None:
    query, control = CountingQuery(1), FakeControl()
    noted = progress_of(query, control)
    noted.note()
    noted.note()
    assert query.asked == 2
    control.ended = True
    noted.note()
    noted.note()
    assert query.asked == 3


def test_without_control_nobody_knows_when_the_last_batch_is_reported() -> None:
    query = CountingQuery(1)
    query.isActive = False
    noted = progress_of(query, None)
    noted.note()
    noted.note()
    assert query.asked == 2


@pytest.mark.parametrize(("every_s", "asked"), [(0.0, 3), (60.0, 1)])
def test_it_is_asked_now_and_then(monkeypatch: pytest.MonkeyPatch, every_s: float, asked: int) -> None:
    monkeypatch.setattr(progress, "_NOTE_EVERY_S", every_s)
    query = CountingQuery(1)
    noted = progress_of(query, FakeControl())
    for _ in range(3):
        noted.note_sometimes()
    assert query.asked == asked
