"""``tailrace bench engines``: other engines at the same work, on the same broker, in the same run."""

from collections.abc import Sequence

from tailrace.bench.options import BenchOptions, caveats
from tailrace.bench.registry import all_lanes, lanes_named
from tailrace.bench.study import Study
from tailrace.bench.work import Work

WORKS = (Work.STATELESS, Work.AGGREGATE, Work.PYTHON)
RATES = (200.0, 2000.0, 8000.0)
_FAIRNESS = (
    "Every engine gets the same producer and consumer settings, partitions and parallelism. The default lanes keep "
    "everything else as the engine comes; the tuned ones are set as its own documentation advises."
)
NOT_HERE = ("microbatch", "microbatch-stock", "continuous")


def engines_study(
    options: BenchOptions,
    works: Sequence[Work] = WORKS,
    rates: Sequence[float] = RATES,
    names: Sequence[str] = (),
) -> Study:
    """Every lane that can do a work, at every rate."""
    chosen = lanes_named(names) if names else [lane for name, lane in all_lanes().items() if name not in NOT_HERE]
    cells = [
        options.cell(lane, work=work, rate=rate, key=f"{lane.name} {work} {rate:g}")
        for rate in rates
        for work in works
        for lane in chosen
        if work in lane.works and not (lane.name == "floor" and work is not Work.STATELESS)
    ]
    settings = {**options.as_settings(), "works": [str(work) for work in works], "rates_per_s": list(rates)}
    return Study(
        "engines",
        cells,
        options.runs,
        settings,
        notes=[_FAIRNESS, *caveats(options)],
        tolerates=lambda run: bool(run["fell_behind"]),
    )
