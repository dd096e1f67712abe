package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

/** How long the tasks of this process have waited for their Python workers, for whoever watches the query. */
object PythonWaits {
  private val tasks = new ConcurrentHashMap[PendingRows, Long]()

  private[tailrace] def add(rows: PendingRows, taskAttempt: Long): Unit = tasks.put(rows, taskAttempt)

  private[tailrace] def remove(rows: PendingRows): Unit = tasks.remove(rows)

  /** How long the longest-waiting row of a task has waited for a worker that is at work; 0 if none waits. */
  def waitedNs(taskAttempt: Long): Long =
    tasks.asScala.collect { case (rows, `taskAttempt`) => rows.waitedNs }.maxOption.getOrElse(0L)
}
