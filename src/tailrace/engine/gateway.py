"""The way into Spark's JVM, for the other modules of this package alone."""

from collections.abc import Iterator
from dataclasses import field
from typing import Any

from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> Any:
    return spark._jvm


def tailrace(spark: SparkSession) -> Any:
    """The engine's own objects."""
    return jvm(spark).org.apache.spark.sql.tailrace


def classic(spark: SparkSession) -> Any:
    return spark._jsparkSession


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def field(holder: Any, name: str) -> Any:
    """The value of a private field."""
    field = holder.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(holder)
