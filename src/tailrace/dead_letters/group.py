"""Dead letters with the same reason and source topic, counted."""

from collections.abc import Iterable
from dataclasses import dataclass

from tailrace.dead_letters.letter import Letter


@dataclass
class Group:
    """Letters with the same reason and source topic.

    Attributes:
        reason: Their reason.
        topic: Their source topic.
        count: How many there are.
        first_ms: When the pipeline read the first of their records.
        last_ms: When it read the last one.
        error: The error of the last one.
    """

    reason: str
    topic: str
    count: int
    first_ms: int
    last_ms: int
    error: str


def groups_of(letters: Iterable[Letter]) -> list[Group]:
    """Return the groups, the largest first."""
    groups: dict[tuple[str, str], Group] = {}
    for letter in letters:
        key = letter.reason, letter.topic
        group = groups.setdefault(key, Group(*key, 0, letter.time_ms, letter.time_ms, letter.error))
        group.count += 1
        group.first_ms = min(group.first_ms, letter.time_ms)
        if letter.time_ms >= group.last_ms:
            group.last_ms, group.error = letter.time_ms, letter.error
    return sorted(groups.values(), key=lambda group: (-group.count, group.reason, group.topic))
