package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.{SparkContext, SparkEnv, TaskContext}

/**
 * Which workers of a query have loaded their functions.
 *
 * A start waits for them, so that the first record does not. Spark's heartbeats would report it seconds later. In local mode
 * the driver and the tasks share a JVM, so the driver can look here.
 */
private[tailrace] final class ReadyWorkers {
  private val loading = ConcurrentHashMap.newKeySet[(Long, Int)]
  private val loaded = ConcurrentHashMap.newKeySet[(Long, Int)]

  /** Note that a task starts a worker for an operator. Call the returned function when the worker has loaded its functions. */
  def begin(context: TaskContext, operator: Int): () => Unit = {
    val worker = (context.taskAttemptId(), operator)
    if (loading.add(worker)) {
      context.addTaskCompletionListener[Unit] { _ =>
        loading.remove(worker)
        loaded.remove(worker)
      }
    }
    () => if (loading.contains(worker)) loaded.add(worker)
  }

  /** Whether at least `expected` workers were started and all of them have loaded their functions. */
  def areReady(expected: Int): Boolean = loaded.size >= math.max(expected, loading.size)
}

private[tailrace] object ReadyWorkers {
  private val queries = new ConcurrentHashMap[String, ReadyWorkers]

  /** Like the method of the class, in the driver's JVM; on an executor it notes nothing. */
  def begin(query: String, context: TaskContext, operator: Int): () => Unit =
    if (SparkEnv.get.executorId == SparkContext.DRIVER_IDENTIFIER) of(query).begin(context, operator) else () => ()

  /** The workers of a query, by the id of its [[PythonSettings]]. */
  def of(query: String): ReadyWorkers = queries.computeIfAbsent(query, _ => new ReadyWorkers)

  def forget(query: String): Unit = queries.remove(query)
}
