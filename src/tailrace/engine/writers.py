"""Read the settings of a writer, and move it to another session."""

from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tailrace.engine.gateway import classic_of, elements, jvm_of, private_field
from tailrace.plan.streams import WriterSettings


def writer_frame(writer: DataStreamWriter) -> DataFrame:
    """Return the DataFrame that a writer writes."""
    frame: DataFrame = writer._df
    return frame


def with_trigger(writer: DataStreamWriter, *, realtime: bool, interval_ms: int, once: bool) -> DataStreamWriter:
    """Return the writer with the trigger of a mode. PySpark's type stubs lack the real-time one."""
    if once and not realtime:
        return writer.trigger(availableNow=True)
    trigger: Any = writer.trigger
    interval = f"{interval_ms} milliseconds"
    triggered: DataStreamWriter = trigger(realTime=interval) if realtime else trigger(processingTime=interval)
    return triggered


def writer_settings(writer: DataStreamWriter) -> WriterSettings:
    """Return a writer's settings. Spark keeps them in private fields, without an accessor."""
    writes = writer._jwrite
    options = private_field(writes, "extraOptions")
    pairs = {str(pair._1()).lower(): str(pair._2()) for pair in elements(options.toSeq())}
    return WriterSettings(str(private_field(writes, "source")), str(private_field(writes, "outputMode")), pairs)


def frame_on(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Return the same query on another session."""
    plan = frame._jdf.queryExecution().logical()
    return DataFrame(jvm_of(spark).org.apache.spark.sql.classic.Dataset.ofRows(classic_of(spark), plan), spark)


def writer_of(writer: DataStreamWriter, frame: DataFrame) -> DataStreamWriter:
    """Return a writer of another DataFrame with the same settings."""
    jvm = jvm_of(frame.sparkSession)
    copy = frame.writeStream
    for each in writer._jwrite.getClass().getDeclaredFields():
        if each.getName() == "ds" or jvm.java.lang.reflect.Modifier.isStatic(each.getModifiers()):
            continue
        each.setAccessible(True)
        each.set(copy._jwrite, each.get(writer._jwrite))
    return copy


def save(writer: DataFrameWriter) -> str | None:
    """Write a batch; return Spark's error text, or None if it succeeded."""
    try:
        writer.save()
    except (PySparkException, Py4JError) as failed:
        return str(failed)
    return None
