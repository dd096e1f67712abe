package org.apache.spark.sql.execution.python.tailrace

import java.util.ArrayDeque
import java.util.concurrent.TimeUnit.MILLISECONDS
import java.util.concurrent.locks.ReentrantLock

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.kafka010.tailrace.{Flow, Span}
import org.apache.spark.util.UninterruptibleThread

/** A row that waits for its result from a Python worker. It holds the span of its record until its result is worked on. */
private[tailrace] final class PendingRow(val row: UnsafeRow, val arrivedNs: Long, val span: Span) {
  var sentNs = 0L

  /** How often the row was sent in a batch of its own, after a worker died with it. */
  var attempts = 0
}

/**
 * The pending rows of a task: queued for a Python worker, or sent to it without a reply yet.
 *
 * A reader thread waits for the next input row, so the task never waits for rows that have not arrived. If the worker is
 * idle, the reader thread also sends the row: waking another thread takes as long as the worker itself. When a worker dies,
 * its rows go to the next worker. The input iterator must not reuse its rows.
 *
 * @param maxBatchRows the most rows in one batch
 * @param maxInFlight the most rows kept without a reply, so that a function that never replies does not fill the memory
 */
private[tailrace] final class PendingRows(
    rows: Iterator[UnsafeRow],
    context: TaskContext,
    maxBatchRows: Int,
    maxInFlight: Int) {
  import PendingRows._

  private val lock = new ReentrantLock
  private val hasSpace = lock.newCondition()

  /** Held while a batch is encoded and sent, which can take as long as the worker. Always taken before `lock`. */
  private val sendLock = new ReentrantLock
  private val queued = new ArrayDeque[PendingRow]
  private var queuedBytes = 0L
  private val retries = new ArrayDeque[PendingRow]
  private val inFlight = new ArrayDeque[PendingRow]

  /**
   * Whether the worker has a message without a reply. It gets one at a time: rows that arrive meanwhile form the next batch,
   * so batches grow with the load. A second message in flight would leave sooner than needed and be smaller.
   */
  private var isBusy = false

  /** Whether the worker has got its first message, so that it takes batches. */
  private var isStarted = false

  /** Whether the message in flight holds no rows. */
  private var isControl = false

  /** The number of rows in flight that were dropped because of `maxInFlight`. */
  private var dropped = 0
  private var isInputEnded = false
  private var inputFailure: Option[Throwable] = None
  private var lastSentNs = 0L

  /** When the first row of the last batch arrived. */
  private var lastArrivedNs = 0L
  // Kafka's consumer must not be interrupted in the middle of a call, and defers interrupts only in a thread of this class.
  private val reader = new UninterruptibleThread(() => readInput(), s"rows for Python, task ${context.taskAttemptId()}")

  // This listener runs before those of the input, which free the memory that a row may still be read from.
  PythonWaits.add(this, context.taskAttemptId())
  context.addTaskCompletionListener[Unit] { _ =>
    PythonWaits.remove(this)
    reader.interrupt()
    joinReader()
  }
  reader.setDaemon(true)
  reader.start()

  /** Batches of at least one row each, until the input ends. Take the next one only when [[onNextReady]] says so. */
  def batches: Iterator[Seq[PendingRow]] = Iterator.continually(nextBatch()).takeWhile(_.isDefined).flatten

  private def nextBatch(): Option[Seq[PendingRow]] = locked {
    if (!retries.isEmpty) Some(takeRetry())
    else if (!queued.isEmpty) Some(takeQueued())
    else {
      inputFailure.foreach(throw _)
      require(isInputEnded, "a batch was taken before it was ready")
      None
    }
  }

  /** Note that a message without rows is about to be sent. */
  def beginControlMessage(): Unit = locked {
    beginMessage()
    isControl = true
    isStarted = true
  }

  /** Return the first `count` rows in flight, in order: the reply to the last message completes them. */
  def complete(count: Int): Seq[PendingRow] = {
    val rows = locked {
      val known = count - math.min(count, dropped)
      dropped -= count - known
      val taken = new mutable.ArrayBuffer[PendingRow](known)
      while (taken.length < known && !inFlight.isEmpty) taken += inFlight.poll()
      isBusy = false
      taken.toSeq
    }
    sendNext() // before the caller works on the reply
    rows
  }

  /** Retry the last batch row by row because its reply is unreadable; if it had a single row, return that row instead. */
  def retryUnreadable(): Option[PendingRow] = {
    val single = locked {
      isBusy = false
      if (inFlight.size == 1) Option(inFlight.poll()) else requeueInFlight()
    }
    sendNext()
    single
  }

  private def requeueInFlight(): Option[PendingRow] = {
    while (!inFlight.isEmpty) retries.addFirst(inFlight.pollLast())
    None
  }

  private val results = new Flow

  /** Begin with the result of a row that was returned here; the result before it is done. From the task's thread. */
  def begin(row: PendingRow): Unit = results.begin(row.span)

  /** All results of the rows that were returned here are done. From the task's thread. */
  def end(): Unit = {
    results.enter()
    results.end()
  }

  /** Set the callback that sends the next batch, or the end of input, as soon as the worker may get it. */
  def onNextReady(send: () => Unit): Unit = locked { onNextReady = send }

  private var onNextReady: () => Unit = () => ()

  private def sendNext(): Unit = held(sendLock) {
    if (locked(isNextDue)) {
      sendStartedNs = Some(System.nanoTime())
      try onNextReady()
      finally sendStartedNs = None
    }
  }

  /** When the current send started. A worker that does not read blocks the sending thread. */
  @volatile private var sendStartedNs: Option[Long] = None

  private def isNextDue: Boolean = isStarted && !isBusy && (!retries.isEmpty || !queued.isEmpty || isInputEnded)

  /** The time since the last batch was sent; None if the last message had no rows. */
  def sinceSentNs: Option[Long] = locked(if (isControl) None else Some(System.nanoTime() - lastSentNs))

  /**
   * How long the rows of the message in flight have waited for their reply; 0 if there is none. Not the age of all rows in
   * flight: a function that filters never answers for some of them.
   */
  def waitedNs: Long = locked(if (isBusy && !isControl) System.nanoTime() - lastArrivedNs else 0L)

  /** The row in flight at this index. */
  def inFlightAt(index: Int): Option[PendingRow] = locked {
    val all = inFlight.iterator()
    var skipped = dropped
    while (skipped < index && all.hasNext) {
      all.next()
      skipped += 1
    }
    if (index >= dropped && all.hasNext) Some(all.next()) else None
  }

  /**
   * Whether the worker exceeds the time limit for a message. To load and to finish it has at least a minute.
   *
   * @param waitingSinceNs since when the task waits for the reply; a reply may lie unread before that
   */
  def isOverdue(timeoutMs: Long, waitingSinceNs: Option[Long]): Boolean = locked {
    val limitMs = if (isControl) math.max(timeoutMs, MinControlTimeoutMs) else timeoutMs
    val now = System.nanoTime()
    isBusy && (waitingSinceNs ++ sendStartedNs).exists { began =>
      math.min(now - lastSentNs, now - began) > MILLISECONDS.toNanos(limitMs)
    }
  }

  /** Requeue the rows of a worker that died. If it died with one row that has used up its attempts, return that row. */
  def requeue(maxAttempts: Int): Option[PendingRow] = held(sendLock) { // waits for a send to the dead worker
    locked {
      isBusy = false
      isStarted = false
      if (inFlight.size == 1 && inFlight.peek().attempts >= maxAttempts) Some(inFlight.poll()) else requeueInFlight()
    }
  }

  /** Whether the input itself has failed, which is not the worker's fault. */
  def hasInputFailed: Boolean = locked(inputFailure.isDefined)

  /** Whether the worker holds rows that were dropped here, so that no other worker can get them. */
  def hasDropped: Boolean = locked(dropped > 0)

  /** The number of rows that the next worker gets first, each in a batch of its own. */
  def retryCount: Int = locked(retries.size)

  /** Take one row to retry. It is sent alone, so that it is known which row a worker dies with. */
  private def takeRetry(): Seq[PendingRow] = {
    val one = retries.poll()
    one.attempts += 1
    markSent(Seq(one))
  }

  private def takeQueued(): Seq[PendingRow] = {
    val batch = new mutable.ArrayBuffer[PendingRow](math.min(maxBatchRows, queued.size))
    var bytes = 0L
    while (batch.length < maxBatchRows && bytes < MaxBytes && !queued.isEmpty) {
      batch += queued.poll()
      bytes += batch.last.row.getSizeInBytes
    }
    queuedBytes -= bytes
    hasSpace.signal()
    markSent(batch.toSeq)
  }

  private def markSent(batch: Seq[PendingRow]): Seq[PendingRow] = {
    beginMessage()
    lastArrivedNs = batch.head.arrivedNs
    batch.foreach { each =>
      each.sentNs = lastSentNs
      inFlight.add(each)
    }
    while (inFlight.size > maxInFlight) {
      inFlight.poll()
      dropped += 1
    }
    batch
  }

  private def beginMessage(): Unit = {
    lastSentNs = System.nanoTime()
    isBusy = true
    isControl = false
  }

  private def readInput(): Unit = {
    TaskContext.setTaskContext(context)
    try {
      val failed =
        try {
          rows.foreach(enqueue)
          None
        } catch {
          case interrupted: InterruptedException => throw interrupted
          case failed: Throwable => Some(failed)
        }
      locked {
        inputFailure = failed
        isInputEnded = true
      }
      sendNext()
    } catch {
      case _: InterruptedException => // the task has ended
    } finally TaskContext.unset()
  }

  /** Wait for the reader thread even if this thread is interrupted: the input is freed after this returns. */
  private def joinReader(): Unit = {
    var interrupted = false
    while (reader.isAlive) {
      try reader.join()
      catch { case _: InterruptedException => interrupted = true }
    }
    if (interrupted) Thread.currentThread().interrupt()
  }

  private def enqueue(row: UnsafeRow): Unit = {
    val isDue = locked {
      while (queued.size >= Capacity || queuedBytes >= MaxBytes) hasSpace.await()
      queued.add(new PendingRow(row, System.nanoTime(), Flow.hold()))
      queuedBytes += row.getSizeInBytes
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

private[tailrace] object PendingRows {

  /** Most queued rows: enough for the largest useful batch, few enough for back pressure when Python is slow. */
  private val Capacity = 8192

  private val MinControlTimeoutMs = 60000L

  /** Most bytes of the rows in a batch, and of the queued rows. */
  private val MaxBytes = 16L << 20
}
