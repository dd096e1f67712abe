"""Durations as users write them."""

import re

from tailrace.errors import DurationInvalid

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_LONG_UNITS = {"millisecond": "ms", "sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h"}
_WRITTEN = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")

REALTIME_MINIMUM_MS = 5_000
"""Spark's own lower bound of a real-time checkpoint interval."""
PROGRESS_MINIMUM_MS = 100
"""Each note of progress is a file in the checkpoint folder, and asks every task and the output topics."""


def parse_duration_ms(text: str, what: str) -> int:
    """Return the milliseconds of a duration such as ``500ms``, ``10s``, ``5m``, ``1h`` or ``5 minutes``.

    Args:
        text: The duration.
        what: The option, for the error.
    """
    match = _WRITTEN.fullmatch(text.lower())
    unit = match.group(2) if match else ""
    unit = unit if unit in _UNITS_MS else _LONG_UNITS.get(unit.removesuffix("s"), "")
    if match is None or not unit:
        raise DurationInvalid(f"invalid duration {text!r} for {what}", fix="write it as 500ms, 10s, 5m or 1h")
    return round(float(match.group(1)) * _UNITS_MS[unit])


def require_realtime_interval(interval_ms: int, minimum_ms: int = REALTIME_MINIMUM_MS) -> None:
    """Refuse a checkpoint interval that Spark would refuse."""
    if interval_ms < minimum_ms:
        raise DurationInvalid(
            f"a checkpoint interval of {in_words(interval_ms)} is too short for real time",
            why=f"Spark's minimum is {in_words(minimum_ms)}; "
            "records are written as they arrive, not at the next checkpoint",
            fix=f"--checkpoint-every {in_words(minimum_ms)} or longer; 5m is the default",
        )


def require_progress_interval(interval_ms: int) -> None:
    """Refuse to note progress so often that the notes would be most of the work."""
    if interval_ms < PROGRESS_MINIMUM_MS:
        raise DurationInvalid(
            f"noting progress every {in_words(interval_ms)} is too often",
            why=f"each note writes a file and asks the brokers; the minimum is {in_words(PROGRESS_MINIMUM_MS)}",
            fix=f"--progress-every {in_words(PROGRESS_MINIMUM_MS)} or longer; 1s is the default",
        )


def in_words(milliseconds: int) -> str:
    """Return a duration in the largest unit that fits, such as ``5m``."""
    for unit in ("h", "m", "s"):
        if milliseconds and milliseconds % _UNITS_MS[unit] == 0:
            return f"{milliseconds // _UNITS_MS[unit]}{unit}"
    return f"{milliseconds}ms"
