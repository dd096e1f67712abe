"""Real time with Tailrace: an ordinary pipeline, lineage and dead letters included."""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

LANES = (
    SparkLane(
        "realtime",
        "real time",
        frozenset(Work) - {Work.PYTHON},
        SparkSettings(tailrace=True, trigger="realtime"),
    ),
)
