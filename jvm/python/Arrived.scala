package org.apache.spark.sql.execution.python.tailrace

import java.util.ArrayDeque
import java.util.concurrent.TimeUnit.MILLISECONDS
import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.util.UninterruptibleThread

/** A row on its way to a Python worker and back. */
private[tailrace] final class Waiting(val row: UnsafeRow, val arrivedNs: Long) {
  var handedNs = 0L

  /** How often it went to a worker all by itself, because one had ended over it. */
  var attempts = 0
}

/**
 * Rows as they arrive, and those that a Python worker has and has not answered.
 *
 * A thread of its own awaits the next row, so that what is there already can be told from what would have to be waited for.
 * Where no worker is at a group, that very thread sends the row on: to wake another for it would cost as much as the worker
 * does. Where a worker ends, what it left unanswered is handed to the next one. Rows must not be reused by whoever makes them.
 *
 * @param limit the most rows in a group
 * @param mostKept so many unanswered rows are kept; a function that never answers would otherwise take all memory
 */
private[tailrace] final class Arrived(
    rows: Iterator[UnsafeRow],
    context: TaskContext,
    limit: Int,
    mostKept: Int) {
  import Arrived._

  private val lock = new ReentrantLock
  private val space = lock.newCondition()

  /** Held while a group is made and sent, which may take as long as a worker does; always before the other one. */
  private val sending = new ReentrantLock
  private val fresh = new ArrayDeque[Waiting]
  private var freshBytes = 0L
  private val again = new ArrayDeque[Waiting]
  private val handed = new ArrayDeque[Waiting]

  /**
   * Whether a worker has a group. Rows that come meanwhile make up the next one, so that groups are the larger the busier
   * it is; a second one under way would be sent sooner than needed, and be the smaller for it.
   */
  private var underWay = false

  /** Whether there is a worker that has been asked something, so that it takes groups from here. */
  private var listens = false

  /** Whether what is under way is about no row. */
  private var asked = false

  /** Unanswered rows that were not kept. */
  private var forgotten = 0
  private var ended = false
  private var failure: Option[Throwable] = None
  private var handedNs = 0L
  // Of this kind, because Kafka's consumer must not be interrupted in the middle of something, and knows it so.
  private val pump = new UninterruptibleThread(() => await(), s"rows for Python, task ${context.taskAttemptId()}")

  // It runs before the listeners of what the rows come from, which free what a row may still be read from.
  context.addTaskCompletionListener[Unit] { _ =>
    pump.interrupt()
    joinPump()
  }
  pump.setDaemon(true)
  pump.start()

  /** Groups of what has arrived, one row at least in each, until the last. They may be taken when they are there. */
  def groups: Iterator[Seq[Waiting]] = Iterator.continually(next()).takeWhile(_.isDefined).flatten

  private def next(): Option[Seq[Waiting]] = locked {
    if (!again.isEmpty) Some(handAlone())
    else if (!fresh.isEmpty) Some(hand())
    else {
      failure.foreach(throw _)
      require(ended, "a group was taken before it was there")
      None
    }
  }

  /** A worker is asked something that is about no row. */
  def ask(): Unit = locked {
    begin()
    asked = true
    listens = true
  }

  /** The last group is answered, and so are so many of the rows that were not: these, in order. */
  def answered(count: Int): Seq[Waiting] = {
    val rows = locked {
      val known = count - math.min(count, forgotten)
      forgotten -= count - known
      val taken = new mutable.ArrayBuffer[Waiting](known)
      while (taken.length < known && !handed.isEmpty) taken += handed.poll()
      underWay = false
      taken.toSeq
    }
    sendNext() // before anything becomes of the answer
    rows
  }

  /** The answer to the last group cannot be read: its rows are handed over again, each alone; a single one is given back. */
  def unreadable(): Option[Waiting] = {
    val single = locked {
      underWay = false
      if (handed.size == 1) Option(handed.poll()) else handAgain()
    }
    sendNext()
    single
  }

  /** What has been handed to a worker is to be handed over once more, before all else. */
  private def handAgain(): Option[Waiting] = {
    while (!handed.isEmpty) again.addFirst(handed.pollLast())
    None
  }

  /** What to do when the next group, or the end, is there and may be sent: by the thread that finds it so. */
  def whenNextIsThere(send: () => Unit): Unit = locked { whenNextIsThere = send }

  private var whenNextIsThere: () => Unit = () => ()

  private def sendNext(): Unit = held(sending) {
    if (locked(isNextDue)) {
      sendingNs = Some(System.nanoTime())
      try whenNextIsThere()
      finally sendingNs = None
    }
  }

  /** Since when a group is being sent: a worker that does not read stops whoever sends. */
  @volatile private var sendingNs: Option[Long] = None

  private def isNextDue: Boolean = listens && !underWay && (!again.isEmpty || !fresh.isEmpty || ended)

  /** How long ago the group that is under way was handed to a worker; none where that has been asked about no row. */
  def sinceHandedNs: Option[Long] = locked(if (asked) None else Some(System.nanoTime() - handedNs))

  /** The row that so many unanswered ones lie before. */
  def unanswered(at: Int): Option[Waiting] = locked {
    val all = handed.iterator()
    var skipped = forgotten
    while (skipped < at && all.hasNext) {
      all.next()
      skipped += 1
    }
    if (at >= forgotten && all.hasNext) Some(all.next()) else None
  }

  /**
   * Whether a worker takes longer over a group than it may; for loading and ending it has a minute at least.
   *
   * @param awaitedNs since when its answer is waited for; before, it may have been there
   */
  def isLate(limitMs: Long, awaitedNs: Option[Long]): Boolean = locked {
    val mayTakeMs = if (asked) math.max(limitMs, LeastToLoadMs) else limitMs
    val now = System.nanoTime()
    underWay && (awaitedNs ++ sendingNs).exists { began =>
      math.min(now - handedNs, now - began) > MILLISECONDS.toNanos(mayTakeMs)
    }
  }

  /**
   * A worker has ended: its rows are to be handed to the next one. Where it was over a single row that has been tried alone
   * so often, that row is given back instead.
   */
  def takeBack(attempts: Int): Option[Waiting] = held(sending) { // what is being sent to it is taken back, too
    locked {
      underWay = false
      listens = false
      if (handed.size == 1 && handed.peek().attempts >= attempts) Some(handed.poll()) else handAgain()
    }
  }

  /** Whether there will be no more rows because whoever makes them has failed: a worker has nothing to do with it. */
  def hasFailed: Boolean = locked(failure.isDefined)

  /** Whether a worker has rows that cannot be handed to another one any more. */
  def isForgetful: Boolean = locked(forgotten > 0)

  /** How many rows the next worker gets one by one, before all others. */
  def alone: Int = locked(again.size)

  /** A row that is tried again goes alone, so that it is known which one a worker ends over. */
  private def handAlone(): Seq[Waiting] = {
    val one = again.poll()
    one.attempts += 1
    handOver(Seq(one))
  }

  private def hand(): Seq[Waiting] = {
    val group = new mutable.ArrayBuffer[Waiting](math.min(limit, fresh.size))
    var bytes = 0L
    while (group.length < limit && bytes < MostBytes && !fresh.isEmpty) {
      group += fresh.poll()
      bytes += group.last.row.getSizeInBytes
    }
    freshBytes -= bytes
    space.signal()
    handOver(group.toSeq)
  }

  private def handOver(group: Seq[Waiting]): Seq[Waiting] = {
    begin()
    group.foreach { each =>
      each.handedNs = handedNs
      handed.add(each)
    }
    while (handed.size > mostKept) {
      handed.poll()
      forgotten += 1
    }
    group
  }

  private def begin(): Unit = {
    handedNs = System.nanoTime()
    underWay = true
    asked = false
  }

  private def await(): Unit = {
    TaskContext.setTaskContext(context)
    try {
      val failed =
        try {
          rows.foreach(arrive)
          None
        } catch {
          case interrupted: InterruptedException => throw interrupted
          case failed: Throwable => Some(failed)
        }
      locked {
        failure = failed
        ended = true
      }
      sendNext()
    } catch {
      case _: InterruptedException => // the task has ended, and nobody reads any more
    } finally TaskContext.unset()
  }

  /** Also where the task's own thread is interrupted, which it stays: nobody may read any more when this returns. */
  private def joinPump(): Unit = {
    var interrupted = false
    while (pump.isAlive) {
      try pump.join()
      catch { case _: InterruptedException => interrupted = true }
    }
    if (interrupted) Thread.currentThread().interrupt()
  }

  private def arrive(row: UnsafeRow): Unit = {
    val isDue = locked {
      while (fresh.size >= Capacity || freshBytes >= MostBytes) space.await()
      fresh.add(new Waiting(row, System.nanoTime()))
      freshBytes += row.getSizeInBytes
      isNextDue
    }
    if (isDue) sendNext()
  }

  private def locked[T](work: => T): T = held(lock)(work)

  private def held[T](lock: ReentrantLock)(work: => T): T = {
    lock.lockInterruptibly()
    try work
    finally lock.unlock()
  }
}

private[tailrace] object Arrived {

  /** So many rows may wait: enough for the largest useful group, little enough to push back where Python is slow. */
  private val Capacity = 8192

  private val LeastToLoadMs = 60000L

  /** Rows that are large are fewer, in a group and waiting for one. */
  private val MostBytes = 16L << 20
}
