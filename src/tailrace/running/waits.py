"""What the readers of a running real-time query wait for: a broker that sends nothing, or the query itself."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.engine import ReaderPosition

STALLED_S = 2.5
"""How long records may lie at the broker while their reader waits for records."""
SILENT_S = 3.0
"""How long a question to the brokers may wait for its answer; the engine asks at least once a second."""
SLOW_S = 3.0
"""How long one record or Python call may take, or a backlog grow, before the query is called slow."""
POLLS = 3
"""How many checks in a row must agree: on a busy machine one check may be late, or get old figures."""
_LATE_MS = 1000
"""What a check counts as a wait."""
_OLD_MS = 2000
"""How long the known ends of the topics stay valid."""


class SourcePartition(NamedTuple):
    """A partition of one source; sources on two clusters may have topics of the same name."""

    source: int
    name: str


@dataclass(frozen=True)
class Waits:
    """The partitions that wait, by name; the name of the topic if all of its partitions do."""

    silent: tuple[str, ...] = ()
    """Their brokers do not respond."""
    stalled: tuple[str, ...] = ()
    """They have records, and the broker does not send them."""
    held: tuple[str, ...] = ()
    """The query works on one of their records, or a Python function on one call."""
    slow: tuple[str, ...] = ()
    """They have records, and the query does not take them as fast as they come."""

    @property
    def for_broker(self) -> str:
        """What waits for a broker, as a sentence; empty if nothing does."""
        if self.silent:
            return f"{', '.join(self.silent)}: no broker responds"
        return f"{', '.join(self.stalled)}: the broker does not send the records" if self.stalled else ""

    @property
    def for_query(self) -> str:
        """What waits for the query itself, as a sentence; empty if nothing does."""
        held = f"{', '.join(self.held)}: one record or Python call has taken longer than {SLOW_S:g} s"
        slow = f"{', '.join(self.slow)}: the query is slower than its input"
        return "; ".join([*([held] if self.held else []), *([slow] if self.slow else [])])


@dataclass
class _Episode:
    """Polls in a row that found a reader in the same state."""

    since: float
    first: ReaderPosition
    now: ReaderPosition
    polls: int = 1

    def lasts(self, now: float, seconds: float) -> bool:
        return self.polls >= POLLS and now - self.since >= seconds

    @property
    def is_held(self) -> bool:
        return self.polls >= POLLS and self.now.waited_ms >= 1000 * SLOW_S

    @property
    def is_unanswered(self) -> bool:
        return self.polls >= POLLS and self.now.unanswered_ms >= 1000 * SILENT_S

    @property
    def falls_behind(self) -> bool:
        """Whether the backlog grows and exceeds what was read."""
        read, waiting = self.now.offset - self.first.offset, _unread(self.now)
        return waiting > read and waiting > _unread(self.first)


_Test = Callable[[ReaderPosition, ReaderPosition], bool]
"""Whether a reader is in a state, and has been since an earlier poll."""


class WaitHistory:
    """What the readers waited for, as seen so far."""

    def __init__(self) -> None:
        self._episodes: dict[_Test, dict[SourcePartition, _Episode]] = {}

    def update(self, readers: Sequence[ReaderPosition], now: float) -> Waits:
        """Return what waits too long.

        Args:
            readers: Where the readers are.
            now: A monotonic time in seconds.
        """
        here = {SourcePartition(each.source, each.name): each for each in readers}
        silent = [partition for partition, each in self._follow(_has_no_answer, here, now) if each.is_unanswered]
        stalled = [
            partition for partition, each in self._follow(_waits_for_broker, here, now) if each.lasts(now, STALLED_S)
        ]
        held = {partition for partition, each in self._follow(_is_held, here, now) if each.is_held}
        behind = self._follow(_is_behind, here, now)
        slow = {partition for partition, each in behind if each.lasts(now, SLOW_S) and each.falls_behind}
        if silent:  # the sink may wait for the same brokers
            return Waits(silent=_names(silent, here))
        return Waits(stalled=_names(stalled, here), held=_names(held, here), slow=_names(slow - held, here))

    def _follow(
        self, test: _Test, here: Mapping[SourcePartition, ReaderPosition], now: float
    ) -> Iterable[tuple[SourcePartition, _Episode]]:
        before, after = self._episodes.get(test, {}), {}
        for partition, reader in here.items():
            known = before.get(partition)
            if known is not None and test(known.first, reader):
                known.now, known.polls = reader, known.polls + 1
                after[partition] = known
            elif test(reader, reader):
                after[partition] = _Episode(now, reader, reader)
        self._episodes[test] = after
        return after.items()


def _has_no_answer(first: ReaderPosition, now: ReaderPosition) -> bool:
    """Whether the brokers are silent; a record that comes is an answer, too."""
    return now.unanswered_ms >= _LATE_MS and now.offset == first.offset


def _waits_for_broker(first: ReaderPosition, now: ReaderPosition) -> bool:
    return now.waits_for == "records" and _unread(now) > 0 and now.offset == first.offset


def _is_held(_first: ReaderPosition, now: ReaderPosition) -> bool:
    return now.waits_for == "downstream" and now.waited_ms >= _LATE_MS


def _is_behind(_first: ReaderPosition, now: ReaderPosition) -> bool:
    return now.waits_for == "downstream" and _unread(now) > 0


def _unread(reader: ReaderPosition) -> int:
    """Return the number of records that it has not read yet; 0 if that is not known now."""
    return reader.end - reader.offset if reader.end is not None and reader.unanswered_ms < _OLD_MS else 0


def _names(partitions: Iterable[SourcePartition], here: Mapping[SourcePartition, ReaderPosition]) -> tuple[str, ...]:
    waiting, names = set(partitions), set()
    for partition in waiting:
        of_topic = {each for each, reader in here.items() if (reader.source, reader.topic) == _topic(here[partition])}
        names.add(here[partition].topic if of_topic <= waiting else partition.name)
    return tuple(sorted(names))


def _topic(reader: ReaderPosition) -> tuple[int, str]:
    return reader.source, reader.topic
