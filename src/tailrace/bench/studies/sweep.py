"""``tailrace bench sweep``: how far smaller micro-batches help, with real time and the continuous trigger beside."""

from dataclasses import replace
from typing import Any

from tailrace.bench.options import BenchOptions, caveats
from tailrace.bench.registry import lanes_named
from tailrace.bench.study import Study

INTERVALS_MS = (0, 50, 100, 200, 500, 1000, 2000, 5000)
BESIDE = ("floor", "continuous", "realtime")


def sweep_study(options: BenchOptions, intervals_ms: tuple[int, ...] = INTERVALS_MS) -> Study:
    """Micro-batch at each trigger interval."""
    (batch,) = lanes_named(["microbatch"])
    cells = [options.cell(lane) for lane in lanes_named(BESIDE)]
    keys = {}
    for interval in intervals_ms:
        keys[interval] = f"microbatch {interval} ms"
        cells.append(replace(options, trigger_every=f"{interval}ms").cell(batch, key=keys[interval]))

    def add(result: dict[str, Any]) -> dict[str, Any]:
        return {"sweep": [{"trigger_ms": interval, "key": key} for interval, key in keys.items()]}

    settings = {**options.as_settings(), "intervals_ms": list(intervals_ms)}
    return Study(
        "sweep",
        cells,
        options.runs,
        settings,
        notes=[
            *caveats(options),
            "Below the time that a batch takes there is no interval: each batch starts when the last one is done.",
        ],
        add=add,
    )
