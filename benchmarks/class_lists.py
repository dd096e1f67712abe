"""Record which classes Spark's driver and the development broker load, for the class archives of fast starts.

Runs pipelines of several kinds in both modes, with the JVM option that lists loaded classes, and writes
`src/tailrace/toolchain/classes/*.list.gz`. Run it again when PySpark, the connector or the broker changes.
"""

import os
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

import tailrace as tr
from tailrace.kafka import broker
from tailrace.spark_session import end_session
from tailrace.testing import run
from tailrace.testing.bench import shared_bench
from tailrace.toolchain.class_archive import write_list

ROWS = [{"n": number, "k": f"key-{number % 3}"} for number in range(20)]


def main() -> None:
    """Run everything once and write both lists."""
    with tempfile.TemporaryDirectory() as folder:
        spark, kafka = Path(folder) / "spark", Path(folder) / "broker"
        os.environ["SPARK_SUBMIT_OPTS"] = f"-Xshare:off -XX:DumpLoadedClassList={spark}"
        own_command = broker.broker_command

        def recording(*arguments: object) -> list[str]:
            java, *rest = own_command(*arguments)  # type: ignore[arg-type]
            kept = [each for each in rest if not each.startswith(("-XX:SharedArchiveFile", "-Xshare"))]
            return [java, f"-XX:DumpLoadedClassList={kafka}", *kept]

        broker.broker_command = recording  # a JVM option that no user needs
        for pipeline in _pipelines():
            for mode in ("microbatch", "realtime"):
                print(f"{pipeline.name} in {mode}: {len(run(pipeline, ROWS, mode=mode).rows)} rows out")
        end_session()
        shared_bench().broker.stop()
        for name, classes in (("spark", spark), ("broker", kafka)):
            print(f"{name}: {write_list(name, classes):,} lines")


def _pipelines() -> list[tr.Pipeline]:
    plain = F.udf(lambda n: n + 1, LongType())

    def columns(rows: DataFrame) -> DataFrame:
        return rows.where("n >= 0").withColumn("m", F.col("n") + 1).withColumn("at", F.current_timestamp())

    def function(rows: DataFrame) -> DataFrame:
        return rows.withColumn("m", plain("n"))

    def aggregate(rows: DataFrame) -> DataFrame:
        return rows.groupBy("k").agg(F.count("*").alias("count"), F.sum("n").alias("sum"))

    def pipeline(name: str, transform: object) -> tr.Pipeline:
        source, sink = tr.KafkaSource(f"{name}-in", schema="n long, k string"), tr.KafkaSink(f"{name}-out", key="k")
        return tr.Pipeline(name=name, source=source, transform=transform, sink=sink)  # type: ignore[arg-type]

    return [pipeline("columns", columns), pipeline("function", function), pipeline("aggregate", aggregate)]


if __name__ == "__main__":
    main()
