"""Dead letters as text and as JSON."""

import base64
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tailrace.cli.output import on_one_line
from tailrace.errors import counted

if TYPE_CHECKING:
    from tailrace.dead_letters.group import Group
    from tailrace.dead_letters.letter import Letter
    from tailrace.dead_letters.replay import Tally

_INDENT = "  "


def as_time(milliseconds: int) -> str:
    """Return a time in UTC as JSON has it, and as ``--since`` takes it."""
    return _moment(milliseconds).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def lines_of(groups: "Sequence[Group]") -> Iterator[str]:
    """Yield a table with a line for each group, as wide as the terminal."""
    rows = [("reason", "source", "letters", "first", "last", "error")]
    rows += [
        (
            on_one_line(each.reason),
            each.topic,
            f"{each.count:,}",
            _in_seconds(each.first_ms),
            _in_seconds(each.last_ms),
            on_one_line(each.error),
        )
        for each in groups
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for reason, topic, count, first, last, error in rows:
        cells = (reason.ljust(widths[0]), topic.ljust(widths[1]), count.rjust(widths[2]))
        line = _INDENT.join([*cells, first.ljust(widths[3]), last.ljust(widths[4]), error])
        yield _cut(line, _width()).rstrip()


def paragraph_of(letter: "Letter", *, full: bool) -> Iterator[str]:
    """Yield the lines that show a letter.

    Args:
        letter: The letter.
        full: Whether to print all of a line that is longer than the terminal is wide.
    """
    attempt = f"attempt {letter.attempt}"
    head = [letter.at, _in_seconds(letter.time_ms), attempt, on_one_line(letter.reason), f"letter {letter.place}"]
    yield _INDENT.join(head)
    headers = [f"{name}={_readable(value)}" for name, value in letter.own_headers]
    lines = {
        "error": letter.error,
        "key": _readable(letter.record.key),
        "value": _readable(letter.record.value),
        "headers": _INDENT.join(headers),
    }
    for name, text in lines.items():
        if text:
            line = f"{_INDENT}{name:<7}{_INDENT}{on_one_line(text)}"
            yield line if full else _cut(line, _width())


def as_json(letter: "Letter") -> dict[str, Any]:
    """Return a letter as data; bytes that are not UTF-8 are an object with ``base64``."""
    return {
        "letter": letter.place,
        "at": letter.at,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "event_time": as_time(letter.event_time_ms),
        "time": as_time(letter.time_ms),
        "attempt": letter.attempt,
        "reason": letter.reason,
        "error": letter.error,
        "key": _data(letter.record.key),
        "value": _data(letter.record.value),
        # Pairs: a name may come more than once.
        "headers": [[name, _data(value)] for name, value in letter.own_headers],
    }


def in_words(tally: "Tally", done: str, max_attempt: int) -> str:
    """Return how many letters are to be replayed, or were, and why others are not."""
    skipped = {
        "replayed before": tally.replayed_before,
        f"with more than {counted(max_attempt, 'attempt')}": tally.above_max_attempt,
        "with a result that Kafka refused": tally.refused_results,
        "from a topic that the pipeline does not read": tally.source_not_read,
    }
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in skipped.items() if number)
    return f"{counted(tally.letters, 'letter')} {done}" + (f"; skipped: {reasons}" if reasons else "")


def _readable(data: bytes | None) -> str:
    """Return bytes as text, or in hexadecimal if they are not UTF-8."""
    if data is None:
        return "(null)"
    try:
        return data.decode() or "(empty)"
    except UnicodeDecodeError:
        return "0x" + data.hex()


def _data(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def _width() -> int:
    return shutil.get_terminal_size((160, 24)).columns


def _in_seconds(milliseconds: int) -> str:
    return f"{_moment(milliseconds):%Y-%m-%d %H:%M:%SZ}"


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
