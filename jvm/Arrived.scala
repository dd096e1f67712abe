package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.ArrayBlockingQueue

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow

/**
 * Rows as they arrive. A thread of its own awaits the next one, so that a reader can tell what is there already from
 * what it would have to wait for. Rows must not be reused by whoever makes them.
 */
private[tailrace] class Arrived(rows: Iterator[InternalRow], context: TaskContext) extends Iterator[InternalRow] {
  import Arrived._

  private val queue = new ArrayBlockingQueue[AnyRef](Capacity)
  private var head: AnyRef = _
  private val pump = new Thread(() => await(), s"rows for Python, task ${context.taskAttemptId()}")

  // It runs before the listeners of what the rows come from, which free what a row may still be read from.
  context.addTaskCompletionListener[Unit] { _ =>
    pump.interrupt()
    pump.join()
  }
  pump.setDaemon(true)
  pump.start()

  /** Whether there is a row without waiting. */
  def isReady: Boolean = {
    if (head == null) head = queue.poll()
    head.isInstanceOf[InternalRow]
  }

  /** Whether there is a row, now or later. */
  override def hasNext: Boolean = {
    if (head == null) head = queue.take()
    head match {
      case ended: Ended =>
        ended.failure.foreach(throw _)
        false
      case _ => true
    }
  }

  override def next(): InternalRow = {
    if (!hasNext) Iterator.empty.next()
    val row = head.asInstanceOf[InternalRow]
    head = null
    row
  }

  private def await(): Unit = {
    TaskContext.setTaskContext(context)
    try {
      val failure =
        try {
          rows.foreach(queue.put)
          None
        } catch {
          case failed: Throwable => Some(failed)
        }
      queue.put(Ended(failure))
    } catch {
      case _: InterruptedException => // the task has ended, and nobody reads any more
    } finally TaskContext.unset()
  }
}

private[tailrace] object Arrived {

  /** So many rows may wait: enough for the largest useful batch, little enough to push back where Python is slow. */
  private val Capacity = 8192

  private case class Ended(failure: Option[Throwable])

  /** What has arrived, group by group: each is what is there when it is asked for, one row at least. */
  def groups[T](arrived: Arrived, rows: Iterator[T], limit: Int): Iterator[Iterator[T]] = new Iterator[Iterator[T]] {
    override def hasNext: Boolean = rows.hasNext

    override def next(): Iterator[T] = new Iterator[T] {
      private var taken = 0

      override def hasNext: Boolean = if (taken == 0) rows.hasNext else taken < limit && arrived.isReady

      override def next(): T = {
        taken += 1
        rows.next()
      }
    }
  }
}
