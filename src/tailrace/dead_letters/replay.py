"""Replay dead letters in batches, each letter once.

A batch is noted as replayed after its destination has acknowledged it. So a crash between the two replays that batch
again, and Ctrl-C, which takes effect between two batches, replays nothing twice.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

from tailrace.dead_letters.letter import Letter
from tailrace.dead_letters.progress import Progress
from tailrace.dead_letters.queue import Queue
from tailrace.dead_letters.selection import Selection
from tailrace.pipeline import Pipeline, reads
from tailrace.running.signals import defer_signals

_BATCH_LETTERS = 2000
_BATCH_BYTES = 16 * 1024 * 1024


class Destination(Protocol):
    """Where letters are replayed to."""

    def replay(self, letters: Sequence[Letter], on_done: Callable[[Letter], object]) -> None:
        """Replay letters.

        Args:
            letters: The letters.
            on_done: Called for each letter that is acknowledged, also if another one is refused.
        """


@dataclass
class Tally:
    """How many letters of a selection are replayed, and why others are not."""

    letters: int = 0
    """Those to replay; after a replay, those that were replayed."""
    replayed_before: int = 0
    above_max_attempt: int = 0
    refused_results: int = 0
    """They hold results that Kafka refused, not the records that they came from."""
    source_not_read: int = 0
    """Their topic is none of the pipeline's sources, for example because the pipeline has changed."""

    def as_json(self) -> dict[str, int]:
        """Return the numbers by name."""
        return asdict(self)


@dataclass(frozen=True)
class Replay:
    """A replay of the letters that are in the queue now.

    Attributes:
        queue: The dead letters.
        selection: Which of them.
        progress: Those that were replayed before.
        max_attempt: Letters with more attempts are skipped.
        limit: Replay at most so many.
        again: Whether to replay letters that were replayed before.
    """

    queue: Queue
    selection: Selection
    progress: Progress
    max_attempt: int
    limit: int | None = None
    again: bool = False

    def preview(self) -> Tally:
        """Count the letters without replaying them."""
        tally = Tally()
        tally.letters = sum(1 for _ in self._pending(tally))
        return tally

    def run(self, destination: Destination, tally: Tally) -> None:
        """Replay the letters, and count them in ``tally``, also if this raises an error.

        Raises:
            TailraceError: The destination refused a letter; the next run continues with it.
        """
        for batch in _batches(self._pending(tally)):
            with defer_signals():
                done: list[Letter] = []
                try:
                    destination.replay(batch, done.append)
                finally:
                    self.progress.note(done)
                    tally.letters += len(done)

    def _pending(self, tally: Tally) -> Iterator[Letter]:
        return itertools.islice(self._all_pending(tally), self.limit)

    def _all_pending(self, tally: Tally) -> Iterator[Letter]:
        for letter in self.queue.letters(self.selection):
            if letter in self.progress and not self.again:
                tally.replayed_before += 1
            elif letter.attempt > self.max_attempt:
                tally.above_max_attempt += 1
            elif letter.holds_result:
                tally.refused_results += 1
            elif source_of(self.queue.pipeline, letter) is None:
                tally.source_not_read += 1
            else:
                yield letter


def source_of(pipeline: Pipeline, letter: Letter) -> int | None:
    """Return the number of the source that reads the letter's topic; None if there is none."""
    return next((number for number, each in enumerate(pipeline.sources) if reads(each, letter.topic)), None)


def _batches(letters: Iterable[Letter]) -> Iterator[list[Letter]]:
    batch: list[Letter] = []
    size = 0
    for letter in letters:
        batch.append(letter)
        size += len(letter.record.value or b"")
        if len(batch) >= _BATCH_LETTERS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
