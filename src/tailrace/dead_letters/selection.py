"""Which dead letters a command is about."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from tailrace.dead_letters.letter import Letter
from tailrace.errors import DurationInvalid, OptionRefused
from tailrace.pipeline import WITHOUT_TIME_ZONE, epoch_milliseconds
from tailrace.prepare.duration import parse_duration_ms

_AT = re.compile(r"(.+)-(\d+)@(\d+)")
_PLACE = re.compile(r"(\d+)@(\d+)")


@dataclass(frozen=True)
class Selection:
    """Letters that have one of the reasons, and one of the coordinates, and so on; an empty set selects all.

    Attributes:
        reasons: Their reasons.
        since_ms: The pipeline read the original record at this time or later.
        originals: Topic, partition and offset of the original records.
        places: Partition and offset of the letters in the dead-letter topic.
    """

    reasons: frozenset[str] = frozenset()
    since_ms: int | None = None
    originals: frozenset[tuple[str, int, int]] = frozenset()
    places: frozenset[tuple[int, int]] = frozenset()

    @classmethod
    def of(
        cls,
        *,
        reasons: Sequence[str] = (),
        since: str | None = None,
        at: Sequence[str] = (),
        letters: Sequence[str] = (),
    ) -> Self:
        """Return the selection that the options of a command describe.

        Args:
            reasons: The reasons.
            since: A duration before now, such as ``1h``, or a time with its time zone.
            at: ``topic-partition@offset`` of original records.
            letters: ``partition@offset`` of letters in the dead-letter topic.

        Raises:
            OptionRefused: One of them cannot be parsed.
        """
        return cls(
            frozenset(reasons),
            None if since is None else _time_ms(since, datetime.now(UTC)),
            frozenset(map(_original, at)),
            frozenset(map(_place, letters)),
        )

    def takes(self, letter: Letter) -> bool:
        """Return whether a letter belongs to the selection."""
        return (
            (not self.reasons or letter.reason in self.reasons)
            and (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (not self.originals or (letter.topic, letter.partition, letter.offset) in self.originals)
            and (not self.places or (letter.record.partition, letter.record.offset) in self.places)
        )


def _time_ms(since: str, now: datetime) -> int:
    try:
        return epoch_milliseconds(now) - parse_duration_ms(since, "--since")
    except DurationInvalid:
        pass
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise OptionRefused(
            f"invalid --since {since!r}", fix="use a duration, such as 1h, or a time, such as 2026-01-31T09:00Z"
        ) from None
    if moment.tzinfo is None:
        raise OptionRefused(
            f"--since {since} has no time zone",
            why=WITHOUT_TIME_ZONE,
            fix=f"--since {moment.isoformat()}Z for UTC, or with an offset such as +01:00",
        )
    return epoch_milliseconds(moment)


def _original(text: str) -> tuple[str, int, int]:
    match = _AT.fullmatch(text)
    if match is None:
        raise OptionRefused(f"invalid --at {text!r}", fix="use TOPIC-PARTITION@OFFSET, such as orders-1@57")
    return match[1], int(match[2]), int(match[3])


def _place(text: str) -> tuple[int, int]:
    match = _PLACE.fullmatch(text)
    if match is None:
        raise OptionRefused(f"invalid --letter {text!r}", fix="use PARTITION@OFFSET, such as 0@12")
    return int(match[1]), int(match[2])
