package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.{SparkContext, SparkEnv, TaskContext}

/**
 * The workers of one query that have loaded their functions, as far as this JVM knows them.
 *
 * A start waits for them, so that the first record does not. The counts that tasks report through Spark arrive with
 * heartbeats, seconds later; in local mode driver and tasks share a JVM, so the driver can look.
 */
private[tailrace] final class ReadyWorkers {
  private val loading = ConcurrentHashMap.newKeySet[(Long, Int)]
  private val loaded = ConcurrentHashMap.newKeySet[(Long, Int)]

  /** A task starts a worker for one of its operators; call what is returned when the worker has loaded its functions. */
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

  /** Whether there are this many at least, and all of them have loaded their functions. */
  def areReady(least: Int): Boolean = loaded.size >= math.max(least, loading.size)
}

private[tailrace] object ReadyWorkers {
  private val queries = new ConcurrentHashMap[String, ReadyWorkers]

  /** As [[ReadyWorkers.begin]], where the driver can look; nowhere else is it counted. */
  def begin(query: String, context: TaskContext, operator: Int): () => Unit =
    if (SparkEnv.get.executorId == SparkContext.DRIVER_IDENTIFIER) of(query).begin(context, operator) else () => ()

  /** The workers of a query, by the id of its Python functions. */
  def of(query: String): ReadyWorkers = queries.computeIfAbsent(query, _ => new ReadyWorkers)

  def forget(query: String): Unit = queries.remove(query)
}
