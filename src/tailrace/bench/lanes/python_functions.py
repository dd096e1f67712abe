"""Python functions in real time with Tailrace: the same score by every kind of them, and by a built-in expression."""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work
from tailrace.bench.works.python_function import KINDS

LANES = tuple(
    SparkLane(
        f"realtime-{name}",
        f"real time, {kind.title}",
        frozenset({Work.PYTHON}),
        SparkSettings(tailrace=True, trigger="realtime", function=name),
    )
    for name, kind in KINDS.items()
)
