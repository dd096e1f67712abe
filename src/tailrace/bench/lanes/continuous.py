"""Spark's old continuous trigger. It knows neither state nor joins."""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

LANES = (
    SparkLane(
        "continuous",
        "continuous, stock Spark",
        frozenset({Work.STATELESS}),
        SparkSettings(tailrace=False, trigger="continuous"),
    ),
)
