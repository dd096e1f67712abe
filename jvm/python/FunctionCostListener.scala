package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListenerExecutorMetricsUpdate, SparkListenerTaskEnd}
import org.apache.spark.sql.execution.{MapPartitionsExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.exchange.{BroadcastExchangeLike, ShuffleExchangeExec}
import org.apache.spark.sql.tailrace.TaskListener

/**
 * Collects the cost of a query's Python functions from all of its tasks.
 *
 * Spark adds a task's counts when the task ends: in real time after minutes, and never if its job is cancelled. This listener
 * takes them from heartbeats while a task runs, and from the event of its end.
 */
class FunctionCostListener(context: SparkContext, query: String, id: String, accumulator: FunctionCosts)
    extends TaskListener(context) {
  private val ended = new FunctionCosts
  private val running = mutable.HashMap.empty[Long, FunctionCosts]
  private val endedTasks = mutable.LinkedHashSet.empty[Long]
  @volatile private var metrics: Option[FunctionMetrics] = None

  def value: ju.Map[String, Array[Long]] = synchronized(total.value)

  override def open(): Unit = {
    val system = context.env.metricsSystem
    // Queries may have the same name: removing the metrics of one would remove those of the other.
    val source = Iterator.from(1).map(new FunctionMetrics(query, _, name => synchronized(total.of(name))))
      .find(each => system.getSourcesByName(each.sourceName).isEmpty)
    source.foreach(system.registerSource)
    metrics = source
    super.open()
  }

  /** Whether the workers of a running query have loaded its functions; always true on a cluster, where it is not known. */
  def areReady(plan: SparkPlan): Boolean = !context.isLocal || {
    val operators = plan.collect {
      case mapped: MapPartitionsExec if mapped.func.isInstanceOf[PythonFunctions] => mapped
      case state if PythonProcessor.of(state).isDefined => state
    }
    operators.isEmpty || ReadyWorkers.of(id).areReady(operators.map(taskCount).sum)
  }

  /** The number of tasks that run an operator of a started plan. */
  private def taskCount(plan: SparkPlan): Int = plan match {
    case shuffle: ShuffleExchangeExec => shuffle.outputPartitioning.numPartitions
    case scan: RealTimeStreamScanExec => scan.inputPartitions.size
    case union: UnionExec => union.children.map(taskCount).sum
    case _: BroadcastExchangeLike => 0 // a static table
    case other => other.children.map(taskCount).maxOption.getOrElse(0)
  }

  override def close(): Unit = {
    super.close()
    ReadyWorkers.forget(id)
    metrics.foreach(context.env.metricsSystem.removeSource)
    metrics = None
  }

  override def onExecutorMetricsUpdate(update: SparkListenerExecutorMetricsUpdate): Unit =
    for {
      (task, _, _, counts) <- update.accumUpdates if !endedTasks(task)
      count <- counts if count.id == accumulator.id
      value <- count.update
    } record(running(task) = FunctionCosts.of(value.asInstanceOf[ju.Map[String, Array[Long]]]))

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = record {
    val fromHeartbeat = running.remove(end.taskInfo.taskId)
    val fromEnd = Option(end.taskMetrics).flatMap(_.accumulators().collectFirst {
      case last: FunctionCosts if last.isRegistered && last.id == accumulator.id => last
    })
    fromEnd.orElse(fromHeartbeat).foreach(ended.merge) // a task on a lost executor reports nothing at its end
    // A heartbeat may arrive after the end of its task.
    endedTasks += end.taskInfo.taskId
    while (endedTasks.size > FunctionCostListener.MaxEndedTasks) endedTasks -= endedTasks.head
  }

  private def record(change: => Unit): Unit = {
    val names = synchronized {
      change
      total.names
    }
    metrics.foreach(source => names.foreach(source.register))
  }

  private def total: FunctionCosts = {
    val all = ended.copy()
    running.valuesIterator.foreach(all.merge)
    all
  }
}

private[tailrace] object FunctionCostListener {

  /** Most ended tasks that are remembered. */
  private val MaxEndedTasks = 1000
}
