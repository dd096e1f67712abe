"""The way into Spark's JVM, for the other modules of this package alone."""

from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Everything in Spark's JVM."""
    return spark._jvm


def running_jvm() -> Any:
    """Everything in the JVM that runs; none is started for it, as for a query whose Spark was stopped."""
    return SparkContext._jvm


def tailrace_of(spark: SparkSession) -> Any:
    """The engine's own objects."""
    return jvm_of(spark).org.apache.spark.sql.tailrace


def classic_of(spark: SparkSession) -> Any:
    """The session on Spark's side."""
    return spark._jsparkSession


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def private_field(holder: Any, name: str) -> Any:
    """The value of a private field."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
