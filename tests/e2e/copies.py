"""A user's own query that copies Kafka topics to another one."""

import json
import secrets
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import tailrace as tr
from tailrace.kafka.records import read_records
from tailrace.running.query import RunningQuery

if TYPE_CHECKING:
    from conftest import Kafka


class Copy:
    """A user's own query from Kafka topics to another one."""

    def __init__(self, spark: SparkSession, kafka: "Kafka", folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.name, self.sink = f"copy-{secrets.token_hex(4)}", kafka.topic("out", 1)

    def read(self, **options: Any) -> DataFrame:
        servers = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers}
        return self.spark.readStream.format("kafka").options(**servers, **options).load()

    def writer(self, rows: DataFrame, value: Column | None = None) -> DataStreamWriter:
        rows = rows if value is None else rows.select(value.alias("value"))
        writer = rows.select("value").writeStream.format("kafka").queryName(self.name).option("topic", self.sink)
        return writer.option("kafka.bootstrap.servers", self.kafka.bootstrap_servers)

    def run_once(self, writer: DataStreamWriter, mode: str, **options: Any) -> Any:
        return tr.run(writer, mode, checkpoint=self.folder / "checkpoint", once=True, **options)

    def start(self, writer: DataStreamWriter, mode: str, **options: Any) -> RunningQuery:
        return tr.start(writer, mode, checkpoint=self.folder / "checkpoint", **options)

    def written(self) -> list[Any]:
        return [json.loads(record.value) for record in read_records(self.kafka.config, self.sink)]


def numbers(rows: list[Any]) -> Counter[int]:
    return Counter(row["a"] for row in rows)
