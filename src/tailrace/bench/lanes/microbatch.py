"""Micro-batch at any trigger interval: with Tailrace's settings, and on Spark's own defaults."""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

LANES = (
    SparkLane(
        "microbatch",
        "micro-batch",
        frozenset(Work),
        SparkSettings(tailrace=True, trigger="microbatch"),
        merges=True,
    ),
    SparkLane(
        "microbatch-stock",
        "micro-batch, stock Spark",
        frozenset(Work),
        SparkSettings(tailrace=False, trigger="microbatch"),
        merges=True,
    ),
)
