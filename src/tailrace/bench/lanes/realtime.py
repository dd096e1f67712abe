"""Real time with Tailrace: an ordinary pipeline, lineage and dead letters included.

A second lane has the shuffle that comes with Spark, to show what the engine's own is worth.
"""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

TIMER = {"spark.shuffle.manager.incremental": "streaming"}

LANES = (
    SparkLane(
        "realtime",
        "real time",
        frozenset(Work) - {Work.PYTHON},
        SparkSettings(tailrace=True, trigger="realtime"),
    ),
    SparkLane(
        "realtime-timer",
        "real time, Spark's own shuffle",
        frozenset({Work.AGGREGATE, Work.WINDOW, Work.DEDUPE}),
        SparkSettings(tailrace=True, trigger="realtime", conf=TIMER),
        TIMER,
    ),
)
