"""Real time on Spark's own defaults: the trigger and nothing else.

State in real time needs RocksDB and checkpoint format 2, or Spark refuses to start; so those two are set.
"""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}

LANES = (
    SparkLane(
        "realtime-stock",
        "real time, stock Spark",
        frozenset(Work) - {Work.PYTHON},
        SparkSettings(tailrace=False, trigger="realtime", conf=STATE),
        STATE,
    ),
)
