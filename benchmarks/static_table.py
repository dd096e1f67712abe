"""What a static table costs in real time: it is read and broadcast again at every checkpoint.

One pipeline with a broadcast join against parquet tables of several sizes, checkpoints every 5 s. The cost is how much
longer than the interval a batch takes, by Spark's own progress reports; the first batches, which compile, are left out.
Writes `benchmarks/results/static-table.json`.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import tailrace as tr
from tailrace.kafka.broker import temporary_broker
from tailrace.kafka.client import plain_client
from tailrace.kafka.topics import create_topic
from tailrace.spark_session import end_session

INTERVAL_S = 5
SKIPPED = 2
RESULT = Path(__file__).parent / "results" / "static-table.json"


def main() -> None:
    """Measure each size and print its median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=[0, 1_000, 100_000, 1_000_000])
    parser.add_argument("--checkpoints", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    with temporary_broker(print) as broker:
        config = plain_client(broker.bootstrap_servers)
        for topic in ("payments", "out"):
            create_topic(config, topic, 2)
        spark = tr.session("bench-static", master="local[4]", conf={"spark.ui.enabled": "false"})
        for rows in options.rows:
            table = str(broker.scratch / f"table-{rows}")
            spark.range(rows).selectExpr("cast(id as string) as card", "id % 7 as level").write.parquet(table)
            over_ms = measure(
                broker.bootstrap_servers, str(broker.scratch / f"c{rows}"), table, rows, options.checkpoints
            )
            found[str(rows)] = {"median_ms": statistics.median(over_ms), "each_ms": over_ms}
            name = f"{rows:,} rows" if rows else "no join"
            print(f"{name:>16}: {statistics.median(over_ms):>6.0f} ms beyond the interval, at each checkpoint")
        end_session()
    machine = {"cpu_count": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    report = {"interval_s": INTERVAL_S, "machine": machine, "rows": found}
    RESULT.write_text(json.dumps(report, indent=2) + "\n")


def measure(servers: str, checkpoint: str, table: str, rows: int, checkpoints: int) -> list[float]:
    """How much longer than the interval each batch took, in milliseconds."""

    def enrich(payments: DataFrame) -> DataFrame:
        if not rows:
            return payments
        return payments.join(F.broadcast(payments.sparkSession.read.parquet(table)), "card", "left")

    pipeline = tr.Pipeline(
        name=f"static-{rows}",
        source=tr.KafkaSource("payments", "id long, card string"),
        transform=enrich,
        sink=tr.KafkaSink("out"),
    )
    with tr.start(
        pipeline, bootstrap_servers=servers, checkpoint=checkpoint, checkpoint_every=f"{INTERVAL_S}s"
    ) as running:
        while len(running.query.recentProgress) < checkpoints + SKIPPED:
            time.sleep(0.5)
        progress = [dict(each) for each in running.query.recentProgress]
    return [each["durationMs"]["triggerExecution"] - INTERVAL_S * 1000 for each in progress[SKIPPED:]]


if __name__ == "__main__":
    main()
