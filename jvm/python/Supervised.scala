package org.apache.spark.sql.execution.python.tailrace

import java.util.concurrent.{Executors, ScheduledExecutorService, ScheduledFuture, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.api.python.PythonException
import org.apache.spark.internal.Logging

/**
 * A worker's answers, and those of the next one where it ends: killed, out of memory, or hung for longer than it may.
 *
 * What it left unanswered is handed to the next one, row by row, so that a row that no worker survives is known. That row is
 * blamed. An exception is no such end: the Python half returns those of the user's functions as answers, so what comes as one
 * has nothing to do with a row.
 *
 * @param limitMs how long a worker may have a group of rows without answering it
 */
private[tailrace] final class Supervised(
    arrived: Arrived,
    context: TaskContext,
    limitMs: Long,
    start: WorkerProcess => Iterator[Answer],
    replaced: () => Unit,
    blame: (Waiting, String) => Unit)
    extends Iterator[Answer] {
  import Supervised._

  @volatile private var process: WorkerProcess = _
  private var answers: Iterator[Answer] = _

  /** Since when the task waits for an answer; what it does with the last one is not the worker's time. */
  @volatile private var awaitedNs: Option[Long] = None

  /** Workers that ended one after the other without an answer of any. */
  private var barren = 0

  begin()
  private val watch = watchEvery(math.max(50L, math.min(limitMs / 4, 1000L)))
  context.addTaskCompletionListener[Unit](_ => watch.cancel(false))

  override def hasNext: Boolean = {
    awaitedNs = Some(System.nanoTime())
    try awaited()
    finally awaitedNs = None
  }

  private def awaited(): Boolean = {
    var answer: Option[Boolean] = None
    while (answer.isEmpty) {
      answer =
        try Some(answers.hasNext)
        catch {
          case NonFatal(ended) if isReplaceable(ended) =>
            barren += 1
            if (barren > MostBarren) throw ended // it is not the rows
            replace()
            None
        }
    }
    answer.get
  }

  override def next(): Answer = {
    barren = 0
    answers.next()
  }

  private def begin(): Unit = {
    process = new WorkerProcess
    answers = start(process)
  }

  private def replace(): Unit = {
    val late = process.hung || isLate
    process.end()
    val blamed = arrived.takeBack(if (late) HungAttempts else EndedAttempts)
    val why =
      if (late) s"TimeoutError: it took longer than ${limitMs / 1000.0} s, and its worker was ended"
      else "WorkerEnded: its worker was killed, ran out of memory or crashed"
    replaced()
    blamed.foreach(blame(_, why))
    begin()
  }

  private def isLate: Boolean = arrived.isLate(limitMs, awaitedNs)

  private def isReplaceable(ended: Throwable): Boolean = ended match {
    case _ if context.isInterrupted() || context.isCompleted() || arrived.isForgetful || arrived.hasFailed => false
    case _: TaskKilledException => false
    case raised: PythonException => raised.getMessage.contains("MemoryError")
    case _ => process.hung || causes(ended).exists(_.isInstanceOf[java.io.IOException])
  }

  private def causes(thrown: Throwable): Iterator[Throwable] =
    Iterator.iterate(thrown)(_.getCause).takeWhile(_ != null).take(20)

  private def watchEvery(periodMs: Long): ScheduledFuture[_] = repeat(periodMs) { () =>
    val watched = process // before it is asked how long it takes: the next one has had no time yet
    if (isLate) {
      watched.hung = true
      watched.end()
    }
  }
}

private[tailrace] object Supervised extends Logging {

  /** A row is blamed when a worker ended over it so often with nothing else to do. */
  private val EndedAttempts = 2

  /** More than that in a row, and something else is wrong than a few rows: not every record is to be blamed for it. */
  private val MostBarren = 12

  /** Each costs a whole time limit. */
  private val HungAttempts = 1

  /** Run work periodically, also after it has failed: a scheduler never again runs a task that throws. */
  def repeat(periodMs: Long)(work: Runnable): ScheduledFuture[_] = {
    val guarded: Runnable = () =>
      try work.run()
      catch { case failed: Throwable => logWarning("the time limit of Python functions could not be checked", failed) }
    Watch.scheduleWithFixedDelay(guarded, periodMs, periodMs, TimeUnit.MILLISECONDS)
  }

  private lazy val Watch: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor { work =>
    val thread = new Thread(work, "time limit of Python functions")
    thread.setDaemon(true)
    thread
  }
}
