"""The boundaries between real-time batches: when they were, how long nothing came out, and where the time went."""

import itertools
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailrace.report.result import Boundary

_AROUND_NS = 2_000_000_000
"""How far from a boundary a pause may be that belongs to it."""

Batch = dict[str, Any]
"""A batch's progress as Spark reports it; ``tasks``, where it is known, says when its tasks started and ended."""


def read_progress(events: Path) -> list[Batch]:
    """The batches that a lane noted."""
    if not events.exists():
        return []
    whole, _, _half_written = events.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def boundaries(progress: list[Batch], received_ns: NDArray[np.int64], first_ns: int, end_ns: int) -> list[Boundary]:
    """The boundaries within a window: seconds from its start, the pause a consumer saw, and Spark's own figures."""
    ordered = np.sort(received_ns)
    found = []
    # A batch reports itself when it is over, so the last boundary of a window may lack the batch after it.
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
    """When a batch began."""
    return datetime.fromisoformat(batch["timestamp"].replace("Z", "+00:00")).timestamp() * 1000


def batch_end_ns(batch: Batch) -> int:
    """When a batch was over."""
    return round((batch_start_ms(batch) + _took(batch, "triggerExecution")) * 1e6)


def pause_ms(ordered_ns: NDArray[np.int64], at_ns: int) -> float | None:
    """The longest time without a record around a boundary, as a consumer saw it."""
    # With the record on either side: a pause that reaches out of this time counts in full.
    begin = max(int(np.searchsorted(ordered_ns, at_ns - _AROUND_NS)) - 1, 0)
    end = int(np.searchsorted(ordered_ns, at_ns + _AROUND_NS, side="right")) + 1
    near = ordered_ns[begin:end]
    if len(near) < 2:
        return None
    return round(float(np.max(np.diff(near))) / 1e6, 1)


def parts_ms(batch: Batch, following: Batch | None) -> dict[str, float]:
    """Where the time between two batches went, by what Spark says of the end of one and the start of the other."""
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
