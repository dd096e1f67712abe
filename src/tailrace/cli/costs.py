"""Describe what a Python function costs."""

from collections.abc import Mapping

from tailrace.errors import counted


def cost_in_words(cost: Mapping[str, float]) -> str:
    """Return rows, calls, time in Python, time in the queue, round trip and failures as one line."""
    calls = max(cost["calls"], 1)
    parts = [
        f"{counted(int(cost['rows']), 'row')}, {cost['rows'] / calls:.1f} rows/call",
        f"{cost['python_ms']:.3f} ms/row in Python",
        f"{cost['waited_ms']:.2f} ms queued",
        f"{cost['trip_ms']:.2f} ms round trip",
    ]
    if cost["failed"]:
        parts.append(f"failed on {cost['failed']:,}")
    if cost["replaced"]:
        parts.append(f"workers replaced {counted(int(cost['replaced']), 'time')}")
    return ", ".join(parts)
