package org.apache.spark.sql.tailrace

import java.util.concurrent.TimeoutException

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.SparkListener

/** Hears of tasks from when it is opened until it is closed. */
abstract class TaskWatch(context: SparkContext) extends SparkListener {

  def open(): Unit = context.addSparkListener(this)

  /** Wait until everything that has happened so far is heard. */
  def settle(timeoutMs: Long): Unit =
    try context.listenerBus.waitUntilEmpty(timeoutMs)
    catch { case _: TimeoutException => }

  def close(): Unit = context.removeSparkListener(this)
}
