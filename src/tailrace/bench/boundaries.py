"""The boundaries between real-time batches: when they were, how long nothing came out, and where the time went."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AROUND_NS = 1_500_000_000
"""How far from a boundary a pause may be that belongs to it."""
PARTS = {
    "offsets": ("latestOffset", "getOffset", "getBatch"),
    "planning": ("queryPlanning",),
    "log writes": ("walCommit", "commitOffsets", "commitBatch"),
}
"""By Spark's own names in a batch's progress."""


def read_progress(events: Path) -> list[dict[str, Any]]:
    """The batches that a lane noted."""
    if not events.exists():
        return []
    return [json.loads(line) for line in events.read_text().splitlines() if line.endswith("}")]


def boundaries(
    progress: list[dict[str, Any]], received_ns: NDArray[np.int64], first_ns: int, end_ns: int
) -> list[dict[str, Any]]:
    """The boundaries within a window: seconds from its start, the pause a consumer saw, and Spark's own figures."""
    ordered = np.sort(received_ns)
    found = []
    for batch in progress:
        at_ns = batch_end_ns(batch)
        if first_ns <= at_ns < end_ns:
            found.append(
                {
                    "at_s": round((at_ns - first_ns) / 1e9, 3),
                    "batch": batch["batchId"],
                    "pause_ms": pause_ms(ordered, at_ns),
                    "parts_ms": parts_ms(batch),
                }
            )
    return found


def batch_end_ns(batch: dict[str, Any]) -> int:
    """When a batch was over."""
    began = datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00"))
    return round(began.timestamp() * 1e9) + int(batch["durationMs"]["triggerExecution"]) * 1_000_000


def pause_ms(ordered_ns: NDArray[np.int64], at_ns: int) -> float | None:
    """The longest time without a record around a boundary, as a consumer saw it."""
    near = ordered_ns[(ordered_ns >= at_ns - _AROUND_NS) & (ordered_ns <= at_ns + _AROUND_NS)]
    if len(near) < 2:
        return None
    return round(float(np.max(np.diff(near))) / 1e6, 1)


def parts_ms(batch: dict[str, Any]) -> dict[str, float]:
    """What Spark itself says about a batch, beside its run."""
    told = batch.get("durationMs", {})
    parts = {name: float(sum(told.get(key, 0) for key in keys)) for name, keys in PARTS.items()}
    state = batch.get("stateOperators") or []
    if state:
        parts["state commit"] = float(max(each.get("commitTimeMs", 0) for each in state))
        loads = [each.get("customMetrics", {}).get("rocksdbLoadLatencyMs", 0) for each in state]
        parts["state load"] = float(max(loads, default=0))
    return parts
