"""Format numbers for readers: significant figures and units."""

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard

NOTHING = "\N{EN DASH}"
TO = "\N{EN DASH}"


def is_number(value: object) -> TypeGuard[float]:
    """Return whether there is a figure to show. None and NaN are not figures."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def three_figures(value: Any) -> str:
    """Format a number with three significant figures."""
    if not is_number(value):
        return NOTHING
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def count(value: Any) -> str:
    """Format a count."""
    return f"{value:,.0f}" if is_number(value) else NOTHING


def plain(value: Any) -> str:
    """Format a setting: as it was written, with thousands separators."""
    if not is_number(value):
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.6g}"


def rate(value: Any) -> str:
    """Format records per second."""
    return f"{plain(value)}/s"


def spread(low: Any, high: Any) -> str:
    """Format the range from the lowest to the highest run."""
    return f"{three_figures(low)}{TO}{three_figures(high)}"


def seconds(value: Any) -> str:
    """Format a duration in its two largest units; up to two minutes in seconds."""
    if not is_number(value):
        return NOTHING
    if value <= 120:
        return f"{value:.3g} s"
    total = round(value)
    hours, minutes, rest = total // 3600, total // 60 % 60, total % 60
    units = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{number} {unit}" for number, unit in units if number)


def moment(text: Any) -> str:
    """Format a point in time from its ISO form; return any other text unchanged."""
    try:
        when = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text or "")
    there = when.astimezone(UTC) if when.tzinfo else when
    return f"{there.day} {there:%B %Y, %H:%M}" + (" UTC" if when.tzinfo else "")


def words(value: Any) -> str:
    """Format the value of a setting: text unchanged, everything else as JSON."""
    if isinstance(value, str):
        return value
    if is_number(value):
        return plain(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def flat(values: Any, prefix: str = "") -> dict[str, str]:
    """Flatten nested settings: the names of the parents precede each name."""
    flattened: dict[str, str] = {}
    for name, value in (values or {}).items():
        if isinstance(value, Mapping) and value:
            flattened |= flat(value, f"{prefix}{name} · ")
        else:
            flattened[f"{prefix}{name}"] = words(value)
    return flattened
