package org.apache.spark.sql.tailrace

import java.util.concurrent.TimeoutException

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.SparkListener

/** A Spark listener that is registered between `open` and `close`. */
abstract class TaskListener(context: SparkContext) extends SparkListener {

  def open(): Unit = context.addSparkListener(this)

  /** Wait until Spark has delivered all events so far. */
  def settle(timeoutMs: Long): Unit =
    try context.listenerBus.waitUntilEmpty(timeoutMs)
    catch { case _: TimeoutException => }

  def close(): Unit = context.removeSparkListener(this)
}
