"""The guard of outputs, read and installed as the driver does it."""

import json
import secrets
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

SETTING = "spark.tailrace.delivery"


class Guards:
    """Reads guards in Spark's JVM, and registers them for runs."""

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

    def install(self, guard: Any) -> tuple[dict[str, str], Any]:
        """Register a guard; return the settings of a run that uses it, and a list of the topics that its tasks name."""
        used, name = self.jvm.java.util.ArrayList(), secrets.token_hex(4)
        delivery = self._engine.Delivery(name, guard, self._adds_to(used))
        self._engine.Delivery.register(delivery)
        return {SETTING: name}, used

    def _adds_to(self, names: Any) -> Any:
        """A Scala function that adds its argument to a list: Python code cannot be called from tasks."""
        java = self.jvm.java.lang
        anything = java.Class.forName("java.lang.Object")
        kind = java.invoke.MethodType.methodType(java.Boolean.TYPE, anything)
        handle = java.invoke.MethodHandles.publicLookup().bind(names, "add", kind)
        function = java.Class.forName("java.util.function.Function")
        adding = java.invoke.MethodHandleProxies.asInterfaceInstance(function, handle)
        return getattr(self.jvm.scala.jdk, "FunctionWrappers$FromJavaFunction")(adding)
