package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.{Executors, ScheduledExecutorService, ScheduledFuture, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.api.python.PythonException
import org.apache.spark.internal.Logging

/**
 * The replies of a worker. If it is killed, runs out of memory or exceeds the time limit, a new worker takes over.
 *
 * The new worker gets the rows in flight one by one, so that the row that kills them is known. That row fails. A Python
 * exception does not replace a worker: exceptions of the user's function come back as replies, so any other exception is not
 * about a row.
 *
 * @param timeoutMs how long a worker may take for a batch
 */
private[tailrace] final class WorkerSupervisor(
    pending: PendingRows,
    context: TaskContext,
    timeoutMs: Long,
    start: WorkerProcess => Iterator[Reply],
    onReplaced: () => Unit,
    onRowFailed: (PendingRow, String) => Unit)
    extends Iterator[Reply] {
  import WorkerSupervisor._

  @volatile private var process: WorkerProcess = _
  private var replies: Iterator[Reply] = _

  /** Since when the task waits for a reply. The time that the task itself takes for a reply does not count. */
  @volatile private var waitingSinceNs: Option[Long] = None

  /** The number of workers that died in a row without a single reply. */
  private var deathsInARow = 0

  startWorker()
  private val timeoutCheck = checkEvery(math.max(50L, math.min(timeoutMs / 4, 1000L)))
  context.addTaskCompletionListener[Unit](_ => timeoutCheck.cancel(false))

  override def hasNext: Boolean = {
    pending.end()
    waitingSinceNs = Some(System.nanoTime())
    try awaitReply()
    finally waitingSinceNs = None
  }

  private def awaitReply(): Boolean = {
    var hasReply: Option[Boolean] = None
    while (hasReply.isEmpty) {
      hasReply =
        try Some(replies.hasNext)
        catch {
          case NonFatal(death) if isReplaceable(death) =>
            deathsInARow += 1
            if (deathsInARow > MaxDeathsInARow) throw death // the rows are not the cause
            replace()
            None
        }
    }
    hasReply.get
  }

  override def next(): Reply = {
    deathsInARow = 0
    replies.next()
  }

  private def startWorker(): Unit = {
    process = new WorkerProcess
    replies = start(process)
  }

  private def replace(): Unit = {
    val timedOut = process.timedOut || isOverdue
    process.kill()
    val failed = pending.requeue(if (timedOut) MaxTimeouts else MaxDeaths)
    val why =
      if (timedOut) s"TimeoutError: it took longer than ${timeoutMs / 1000.0} s, and its worker was ended"
      else "WorkerEnded: its worker was killed, ran out of memory or crashed"
    onReplaced()
    failed.foreach(onRowFailed(_, why))
    startWorker()
  }

  private def isOverdue: Boolean = pending.isOverdue(timeoutMs, waitingSinceNs)

  private def isReplaceable(death: Throwable): Boolean = death match {
    case _ if context.isInterrupted() || context.isCompleted() || pending.hasDropped || pending.hasInputFailed => false
    case _: TaskKilledException => false
    case raised: PythonException => raised.getMessage.contains("MemoryError")
    case _ => process.timedOut || causes(death).exists(_.isInstanceOf[java.io.IOException])
  }

  private def causes(thrown: Throwable): Iterator[Throwable] =
    Iterator.iterate(thrown)(_.getCause).takeWhile(_ != null).take(20)

  private def checkEvery(periodMs: Long): ScheduledFuture[_] = repeat(periodMs) { () =>
    val checked = process // read first: a worker that replaces it now has not used any time yet
    if (isOverdue) {
      checked.timedOut = true
      checked.kill()
    }
  }
}

private[tailrace] object WorkerSupervisor extends Logging {

  /** A row fails after this many workers died with it alone. */
  private val MaxDeaths = 2

  /** A row fails after this many timeouts alone. One: each takes the whole time limit. */
  private val MaxTimeouts = 1

  /** After more deaths in a row than this, the cause is not a few rows, and the query fails instead of every record. */
  private val MaxDeathsInARow = 12

  /** Run work periodically, even after it throws: a scheduler drops a task that throws. */
  def repeat(periodMs: Long)(work: Runnable): ScheduledFuture[_] = {
    val guarded: Runnable = () =>
      try work.run()
      catch { case failed: Throwable => logWarning("the time limit of Python functions could not be checked", failed) }
    Scheduler.scheduleWithFixedDelay(guarded, periodMs, periodMs, TimeUnit.MILLISECONDS)
  }

  private lazy val Scheduler: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor { work =>
    val thread = new Thread(work, "time limit of Python functions")
    thread.setDaemon(true)
    thread
  }
}
