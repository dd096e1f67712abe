"""Sessions, their settings, and Spark's task slots."""

from typing import Any

from pyspark.sql import SparkSession

from tailrace.engine.gateway import classic_of, jvm_of, tailrace_of
from tailrace.plan.slots import Capacity


def clone_session(spark: SparkSession) -> SparkSession:
    """Return a session with the same views and settings; its later settings are its own."""
    clone = tailrace_of(spark).QuerySessions.cloneOf(classic_of(spark))
    return SparkSession(spark.sparkContext, clone)


def explicit_settings(spark: SparkSession) -> dict[str, str]:
    """Return every setting of a session or its context that somebody set; no defaults."""
    settings: Any = spark.conf.getAll
    return dict(settings)


def has_kafka_connector(spark: SparkSession) -> bool:
    """Return whether Spark has the Kafka connector."""
    provider = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
    loader = jvm_of(spark).java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(provider.replace(".", "/") + ".class") is not None


def capacity(spark: SparkSession) -> Capacity:
    """Return how many tasks Spark can run at once, and how many it runs now."""
    scala_context = spark.sparkContext._jsc.sc()
    profile = scala_context.resourceProfileManager().defaultResourceProfile()
    slots = int(scala_context.maxNumConcurrentTasks(profile))
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    taken = sum(stage.numActiveTasks for stage in stages if stage is not None)
    asked = spark.sparkContext.getConf().get("spark.executor.instances", "0") or "0"
    there = int(scala_context.getExecutorMemoryStatus().size()) - 1
    is_cluster = not (spark.sparkContext.master or "").startswith("local")
    return Capacity(slots, taken, max(0, int(asked) - there) if is_cluster else 0)
