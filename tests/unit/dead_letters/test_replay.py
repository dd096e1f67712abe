import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tailrace.dead_letters import replay as module
from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.progress import Progress
from tailrace.dead_letters.queue import Queue
from tailrace.dead_letters.replay import Replay, Tally, source_of
from tailrace.dead_letters.selection import Selection
from tailrace.errors import KafkaError
from tailrace.pipeline import KafkaSource

from .letters import letter
from .test_queue import shop


@dataclass(frozen=True)
class FakeQueue(Queue):
    """A queue of given letters."""

    all: list[Letter] = field(default_factory=list)

    def letters(self, selection: Selection) -> Iterator[Letter]:
        return (each for each in self.all if selection.takes(each))


class FakeDestination:
    """Keeps the letters; may do something before it takes one."""

    def __init__(self, before: Callable[[Letter], object] = lambda _: None) -> None:
        self.before = before
        self.taken: list[int] = []
        self.batches: list[int] = []

    def replay(self, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
        self.batches.append(len(letters))
        for each in letters:
            self.before(each)
            self.taken.append(each.record.offset)
            on_done(each)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_BATCH_LETTERS", 2)


def replaying(letters: Sequence[Letter], **changes: Any) -> Replay:
    queue = FakeQueue(shop(), "shop.dead-letters", {}, {0: 100}, list(letters))
    return Replay(queue, Selection(), Progress("shop", "id"), **({"max_attempt": 5} | changes))


def run(replay: Replay, destination: FakeDestination) -> Tally:
    tally = Tally()
    with replay.progress.held():
        replay.run(destination, tally)
    return tally


LETTERS = [letter(number) for number in range(5)]


def test_each_letter_is_replayed_once() -> None:
    destination = FakeDestination()
    assert replaying(LETTERS).preview() == Tally(5)
    assert run(replaying(LETTERS), destination) == Tally(5)
    assert destination.taken == [0, 1, 2, 3, 4]
    assert destination.batches == [2, 2, 1]
    assert run(replaying(LETTERS), destination) == Tally(0, replayed_before=5)
    assert run(replaying([*LETTERS, letter(5)]), destination) == Tally(1, replayed_before=5)
    assert destination.taken == [0, 1, 2, 3, 4, 5]


def test_again_ignores_what_was_replayed() -> None:
    destination = FakeDestination()
    run(replaying(LETTERS), destination)
    assert run(replaying(LETTERS, again=True), destination) == Tally(5)
    assert destination.taken == 2 * [0, 1, 2, 3, 4]


def test_a_limit_takes_the_oldest_that_are_left() -> None:
    destination = FakeDestination()
    assert replaying(LETTERS, limit=3).preview() == Tally(3)
    run(replaying(LETTERS, limit=3), destination)
    run(replaying(LETTERS, limit=3), destination)
    assert destination.taken == [0, 1, 2, 3, 4]


def test_letters_with_too_many_attempts_or_of_another_topic_are_counted() -> None:
    letters = [letter(0, attempt=5), letter(1, attempt=6), letter(2, topic="elsewhere")]
    destination = FakeDestination()
    assert run(replaying(letters), destination) == Tally(1, above_max_attempt=1, source_not_read=1)
    assert destination.taken == [0]


def test_results_that_kafka_refused_are_not_sent_as_records() -> None:
    letters = [letter(0, reason="too_large"), letter(1, reason="invalid_record"), letter(2)]
    destination = FakeDestination()
    assert run(replaying(letters), destination) == Tally(1, refused_results=2)
    assert destination.taken == [2]


def test_what_was_acknowledged_before_an_error_is_not_replayed_again() -> None:
    def refuse(each: Letter) -> None:
        if each.record.offset == 3:
            raise KafkaError("refused")

    broken, destination = FakeDestination(refuse), FakeDestination()
    tally, replay = Tally(), replaying(LETTERS)
    with replay.progress.held(), pytest.raises(KafkaError):
        replay.run(broken, tally)
    assert (broken.taken, tally.letters) == ([0, 1, 2], 3)
    run(replaying(LETTERS), destination)
    assert destination.taken == [3, 4]


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Let Ctrl-C interrupt: a shell ignores it in what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_takes_effect_after_the_batch() -> None:
    def interrupt(each: Letter) -> None:
        if each.record.offset == 2:
            os.kill(os.getpid(), signal.SIGINT)

    interrupted, destination = FakeDestination(interrupt), FakeDestination()
    tally, replay = Tally(), replaying(LETTERS)
    with replay.progress.held(), pytest.raises(KeyboardInterrupt):
        replay.run(interrupted, tally)
    assert (interrupted.taken, tally.letters) == ([0, 1, 2, 3], 4)
    run(replaying(LETTERS), destination)
    assert destination.taken == [4]


def test_a_batch_of_large_letters_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_LETTERS", 1000)
    monkeypatch.setattr(module, "_BATCH_BYTES", 100)
    destination = FakeDestination()
    run(replaying([letter(number, value=b"x" * 60) for number in range(5)]), destination)
    assert destination.batches == [2, 2, 1]


def test_a_letter_belongs_to_the_source_that_reads_its_topic() -> None:
    sources = [KafkaSource("orders", "id long"), KafkaSource(pattern="returns-.*", schema="id long")]
    pipeline = shop(source=sources)
    topics = ("orders", "returns-de", "returns")
    assert [source_of(pipeline, letter(topic=topic)) for topic in topics] == [0, 1, None]
