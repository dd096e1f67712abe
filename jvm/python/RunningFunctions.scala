package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import scala.collection.mutable

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.SparkContext
import org.apache.spark.metrics.source.Source
import org.apache.spark.scheduler.{SparkListenerExecutorMetricsUpdate, SparkListenerTaskEnd}
import org.apache.spark.sql.execution.{MapPartitionsExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, ShuffleExchangeExec}
import org.apache.spark.sql.tailrace.TaskWatch

/**
 * What the Python functions of a query cost so far, in all of its tasks.
 *
 * Spark adds a task's counts when it has ended, which in real time is after minutes, and not at all where its job was
 * cancelled. So they are taken from heartbeats while a task runs, and from the event of its end.
 */
class RunningFunctions(context: SparkContext, query: String, id: String, counted: FunctionCosts) extends TaskWatch(context) {
  private val ended = new FunctionCosts
  private val running = mutable.HashMap.empty[Long, FunctionCosts]
  private val over = mutable.LinkedHashSet.empty[Long]
  @volatile private var metrics: Option[FunctionMetrics] = None

  def value: ju.Map[String, Array[Long]] = synchronized(total.value)

  override def open(): Unit = {
    val system = context.env.metricsSystem
    // Queries may have the same name, and to remove the metrics of one would remove the other's.
    val shown = Iterator.from(1).map(new FunctionMetrics(query, _, name => synchronized(total.of(name))))
      .find(each => system.getSourcesByName(each.sourceName).isEmpty)
    shown.foreach(system.registerSource)
    metrics = shown
    super.open()
  }

  /** Whether the workers of a running query have loaded its functions, so that its first record waits for none. */
  def areReady(plan: SparkPlan): Boolean = !context.isLocal || {
    val operators = plan.collect { case mapped: MapPartitionsExec if mapped.func.isInstanceOf[Functions] => mapped }
    operators.isEmpty || ReadyWorkers.of(id).areReady(operators.map(tasks).sum)
  }

  /** How many tasks run an operator of a plan that has started. */
  private def tasks(plan: SparkPlan): Int = plan match {
    case shuffle: ShuffleExchangeExec => shuffle.outputPartitioning.numPartitions
    case scan: RealTimeStreamScanExec => scan.inputPartitions.size
    case union: UnionExec => union.children.map(tasks).sum
    case _: BroadcastExchangeLike => 0 // a static table
    case other => other.children.map(tasks).maxOption.getOrElse(0)
  }

  override def close(): Unit = {
    super.close()
    ReadyWorkers.forget(id)
    metrics.foreach(context.env.metricsSystem.removeSource)
    metrics = None
  }

  override def onExecutorMetricsUpdate(update: SparkListenerExecutorMetricsUpdate): Unit =
    for {
      (task, _, _, counts) <- update.accumUpdates if !over(task)
      count <- counts if count.id == counted.id
      value <- count.update
    } hear(running(task) = FunctionCosts.of(value.asInstanceOf[ju.Map[String, Array[Long]]]))

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = hear {
    val heard = running.remove(end.taskInfo.taskId)
    val told = Option(end.taskMetrics).flatMap(_.accumulators().collectFirst {
      case last: FunctionCosts if last.isRegistered && last.id == counted.id => last
    })
    told.orElse(heard).foreach(ended.merge) // one whose machine was lost tells no more
    // A heartbeat may come after the end.
    over += end.taskInfo.taskId
    while (over.size > RunningFunctions.MostOver) over -= over.head
  }

  private def hear(news: => Unit): Unit = {
    val names = synchronized {
      news
      total.names
    }
    metrics.foreach(shown => names.foreach(shown.show))
  }

  private def total: FunctionCosts = {
    val all = ended.copy()
    running.valuesIterator.foreach(all.merge)
    all
  }
}

private[tailrace] object RunningFunctions {

  /** So many tasks that have ended are remembered. */
  private val MostOver = 1000
}

/** The same as metrics of Spark's, for whatever its metrics system is told to send them to. */
private[tailrace] final class FunctionMetrics(query: String, number: Int, cost: String => Option[FunctionCost]) extends Source {
  import FunctionMetrics._

  override val sourceName: String = s"tailrace.${plain(query)}${if (number > 1) s"_$number" else ""}.python"

  override val metricRegistry: MetricRegistry = new MetricRegistry

  def show(function: String): Unit = Figures.foreach { case (figure, read) =>
    val name = MetricRegistry.name(plain(function), figure)
    if (!metricRegistry.getGauges.containsKey(name)) {
      val gauge: Gauge[Long] = () => cost(function).map(read).getOrElse(0L)
      metricRegistry.register(name, gauge)
    }
  }
}

private[tailrace] object FunctionMetrics {
  private val Figures = Seq[(String, FunctionCost => Long)](
    "rows" -> (_.rows),
    "calls" -> (_.calls),
    "mostRows" -> (_.mostRows),
    "pythonNs" -> (_.pythonNs),
    "waitedNs" -> (_.waitedNs),
    "tripNs" -> (_.tripNs),
    "failed" -> (_.failed),
    "replaced" -> (_.replaced))

  /** A part of a metric's name that no system of metrics stumbles over. */
  private def plain(name: String): String = name.replaceAll("[^A-Za-z0-9_-]+", "_")
}
