"""Comparing figures in results, which may be missing or no figures at all."""

from typing import Any


def differs(figure: Any, right: float, tolerance: float) -> bool:
    """Whether a figure is another one than it must be: what is missing, null or NaN differs from everything."""
    return not (isinstance(figure, int | float) and abs(figure - right) <= tolerance)
