"""The boundaries between real-time batches: their time, the pause in the output, and its parts."""

import itertools
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailrace.report.result import Boundary

_AROUND_NS = 2_000_000_000
"""A pause within this distance belongs to a boundary."""

Batch = dict[str, Any]
"""A batch's progress as Spark reports it; ``tasks``, if known, has the start and end of its tasks."""


def read_progress(events: Path) -> list[Batch]:
    """Read the batches that a lane reported."""
    if not events.exists():
        return []
    whole, _, _half_written = events.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def boundaries(progress: list[Batch], received_ns: NDArray[np.int64], first_ns: int, end_ns: int) -> list[Boundary]:
    """Return the boundaries in a window, with the pause that a consumer saw and its parts."""
    ordered = np.sort(received_ns)
    found = []
    # Spark reports a batch at its end, so the batch after the last boundary may be missing.
    for batch, following in itertools.zip_longest(progress, progress[1:]):
        at_ns = batch_end_ns(batch)
        if first_ns <= at_ns < end_ns:
            found.append(
                Boundary(
                    at_s=round((at_ns - first_ns) / 1e9, 3),
                    batch=batch["batchId"],
                    pause_ms=pause_ms(ordered, at_ns),
                    parts_ms=parts_ms(batch, following),
                )
            )
    return found


def batch_start_ms(batch: Batch) -> float:
    """Return when a batch began."""
    return datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp() * 1000


def batch_end_ns(batch: Batch) -> int:
    """Return when a batch ended."""
    return round((batch_start_ms(batch) + _took(batch, "triggerExecution")) * 1e6)


def pause_ms(ordered_ns: NDArray[np.int64], at_ns: int) -> float | None:
    """Return the longest time without a record around a boundary, as a consumer saw it."""
    # With the record on either side, so that a pause across the edge counts in full.
    begin = max(int(np.searchsorted(ordered_ns, at_ns - _AROUND_NS)) - 1, 0)
    end = int(np.searchsorted(ordered_ns, at_ns + _AROUND_NS, side="right")) + 1
    near = ordered_ns[begin:end]
    if len(near) < 2:
        return None
    return round(float(np.max(np.diff(near))) / 1e6, 1)


def parts_ms(batch: Batch, following: Batch | None) -> dict[str, float]:
    """Return the parts of the time between two batches, by Spark's progress reports."""
    parts = {"log writes": _took(batch, "walCommit") + _took(batch, "commitOffsets")}
    state = batch.get("stateOperators") or []
    if state:
        parts["state commit"] = float(max(each.get("commitTimeMs", 0) for each in state))
    ended = batch.get("tasks")
    if ended is not None:
        parts["tasks end, first to last"] = float(ended["last_end"] - ended["first_end"])
    if following is not None:
        parts |= _start_parts(following)
        if ended is not None:
            between = batch_start_ms(following) - ended["last_end"] - parts["log writes"]
            parts["driver between batches"] = max(0.0, round(between, 1))
    return parts


def _start_parts(batch: Batch) -> dict[str, float]:
    parts = {
        "offsets": _took(batch, "latestOffset") + _took(batch, "getOffset") + _took(batch, "getBatch"),
        "planning": _took(batch, "queryPlanning"),
    }
    started = batch.get("tasks")
    if started is not None:
        until_running = started["last_start"] - batch_start_ms(batch)
        parts["task start"] = max(0.0, round(until_running - parts["offsets"] - parts["planning"], 1))
    state = batch.get("stateOperators") or []
    if state:
        loads = [each.get("customMetrics", {}).get("rocksdbLoadLatencyMs", 0) for each in state]
        parts["state load"] = float(max(loads))
    return parts


def _took(batch: Batch, name: str) -> float:
    return float(batch.get("durationMs", {}).get(name, 0))
