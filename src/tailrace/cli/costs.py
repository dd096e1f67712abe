"""Describe what a Python function costs."""

from collections.abc import Mapping

from tailrace.errors import counted


def cost_in_words(cost: Mapping[str, float]) -> str:
    """Return rows, calls, time in Python, wait, round trip and failures as one line."""
    calls = max(cost["calls"], 1)
    parts = [
        f"{counted(int(cost['rows']), 'row')}, {cost['rows'] / calls:.1f} a call",
        f"{cost['python_ms']:.3f} ms of Python a row",
        f"{cost['waited_ms']:.2f} ms waiting for a call",
        f"{cost['trip_ms']:.2f} ms there and back",
    ]
    if cost["failed"]:
        parts.append(f"failed on {cost['failed']:,}")
    if cost["replaced"]:
        parts.append(f"workers replaced {counted(int(cost['replaced']), 'time')}")
    return ", ".join(parts)
