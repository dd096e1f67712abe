"""A Python function in real time on stock Spark, with its check of operators switched off.

On the defaults a row waits for the end of the batch, so this lane has batches of ten seconds. Five settings make Spark
send each row by itself.
"""

from tailrace.bench.lanes.spark import SparkLane
from tailrace.bench.spark_lane import SparkSettings
from tailrace.bench.work import Work

UNCHECKED = {"spark.sql.streaming.realTimeMode.allowlistCheck": "false"}
FIVE = {
    **UNCHECKED,
    "spark.python.udf.pipelined.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.execution.python.udf.maxRecordsPerBatch": "1",
    "spark.sql.execution.python.udf.buffer.size": "4",
}

LANES = (
    SparkLane(
        "python-stock",
        "Python function, stock Spark",
        frozenset({Work.PYTHON}),
        SparkSettings(tailrace=False, trigger="realtime", conf=UNCHECKED, checkpoint_every_s=10),
        {**UNCHECKED, "trigger": "real time, 10 seconds"},
    ),
    SparkLane(
        "python-five",
        "Python function, five settings",
        frozenset({Work.PYTHON}),
        SparkSettings(tailrace=False, trigger="realtime", conf=FIVE),
        FIVE,
    ),
)
