"""The guard of outputs, read as the driver does it."""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession


class Guards:
    """Reads guards in Spark's JVM."""

    def __init__(self, spark: SparkSession, producer: Mapping[str, str]) -> None:
        self.jvm: Any = spark._jvm
        self._engine = self.jvm.org.apache.spark.sql.kafka010.tailrace
        self._producer = self.jvm.java.util.HashMap()
        for name, value in producer.items():
            self._producer.put(name, value)

    def read(self, query: str, ends: Mapping[str, Mapping[int, int]], progress: Any = None) -> Any:
        """Read the outputs of a query from these offsets on."""
        guards = self._engine.OutputGuard
        offsets = json.dumps({topic: {str(at): end for at, end in its.items()} for topic, its in ends.items()})
        of_spark = self.jvm.org.apache.spark.sql.kafka010.JsonUtils.partitionOffsets(offsets)
        silent = getattr(guards, "read$default$4")()
        return guards.read(self._producer, query, of_spark, progress if progress is not None else silent)
