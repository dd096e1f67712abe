"""What a static table costs in real time: Spark reads and broadcasts it again at every checkpoint.

One pipeline with a broadcast join against parquet tables of several sizes. The cost is how much longer than the
checkpoint interval a batch takes, by Spark's own progress reports.
"""

import os
import platform
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import create_topic
from tailrace.measure.lane import Announce
from tailrace.pipeline import KafkaSink, KafkaSource, Pipeline
from tailrace.prepare.options import RunOptions
from tailrace.running.start import start_query
from tailrace.spark_session import end_session, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INTERVAL_S = 5
SKIPPED = 2
"""The first batches, which compile, do not count."""


def measure_static_tables(sizes: Sequence[int], checkpoints: int, announce: Announce) -> dict[str, Any]:
    """Measure a join with a table of each size; a size of 0 is the pipeline without a join."""
    rows: dict[str, dict[str, Any]] = {}
    with temporary_broker(announce) as broker:
        client = plain_client(broker.bootstrap_servers)
        for topic in ("payments", "out"):
            create_topic(client, topic, 2)
        spark = session("bench-static", master="local[4]", conf={"spark.ui.enabled": "false"})
        for size in sizes:
            table = str(broker.scratch / f"table-{size}")
            spark.range(size).selectExpr("cast(id as string) as card", "id % 7 as level").write.parquet(table)
            options = RunOptions(
                bootstrap_servers=broker.bootstrap_servers,
                checkpoint=broker.scratch / f"c{size}",
                checkpoint_every=f"{INTERVAL_S}s",
            )
            over_ms = _over_the_interval_ms(_pipeline(size, table), options, checkpoints)
            rows[str(size)] = {"median_ms": statistics.median(over_ms), "each_ms": over_ms}
            name = f"{size:,} rows" if size else "no join"
            announce(f"{name:>16}: {statistics.median(over_ms):>6.0f} ms beyond the interval, at each checkpoint")
        end_session()
    machine = {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    return {"interval_s": INTERVAL_S, "machine": machine, "rows": rows}


def _pipeline(size: int, table: str) -> Pipeline:
    def enrich(payments: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        if not size:
            return payments
        return payments.join(F.broadcast(payments.sparkSession.read.parquet(table)), "card", "left")

    return Pipeline(
        name=f"static-{size}",
        source=KafkaSource("payments", "id long, card string"),
        transform=enrich,
        sink=KafkaSink("out"),
    )


def _over_the_interval_ms(pipeline: Pipeline, options: RunOptions, checkpoints: int) -> list[float]:
    """How much longer than the interval each batch took, in milliseconds."""
    with start_query(pipeline, options) as running:
        while len(running.query.recentProgress) < checkpoints + SKIPPED:
            running.raise_if_failed()
            time.sleep(0.5)
        progress = [dict(each) for each in running.query.recentProgress]
    return [each["durationMs"]["triggerExecution"] - INTERVAL_S * 1000 for each in progress[SKIPPED:]]
