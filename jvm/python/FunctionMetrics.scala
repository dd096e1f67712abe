package org.apache.spark.sql.execution.python.tailrace

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.metrics.source.Source

/** Publishes the cost of a query's Python functions in Spark's metrics system. */
private[tailrace] final class FunctionMetrics(query: String, number: Int, cost: String => Option[FunctionCost]) extends Source {
  import FunctionMetrics._

  override val sourceName: String = s"tailrace.${sanitized(query)}${if (number > 1) s"_$number" else ""}.python"

  override val metricRegistry: MetricRegistry = new MetricRegistry

  def register(function: String): Unit = Metrics.foreach { case (metric, read) =>
    val name = MetricRegistry.name(sanitized(function), metric)
    if (!metricRegistry.getGauges.containsKey(name)) {
      val gauge: Gauge[Long] = () => cost(function).map(read).getOrElse(0L)
      metricRegistry.register(name, gauge)
    }
  }
}

private[tailrace] object FunctionMetrics {
  private val Metrics = Seq[(String, FunctionCost => Long)](
    "rows" -> (_.rows),
    "calls" -> (_.calls),
    "mostRows" -> (_.mostRows),
    "pythonNs" -> (_.pythonNs),
    "waitedNs" -> (_.waitedNs),
    "tripNs" -> (_.tripNs),
    "failed" -> (_.failed),
    "replaced" -> (_.replaced))

  /** Replace the characters that metrics systems do not accept in a name. */
  private def sanitized(name: String): String = name.replaceAll("[^A-Za-z0-9_-]+", "_")
}
