package org.apache.spark.sql.kafka010.tailrace

import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.TimeUnit.MILLISECONDS
import java.util.concurrent.locks.ReentrantLock

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.{ApiException, DisconnectException, TimeoutException}

import org.apache.spark.sql.connector.read.streaming.{Offset, ReadLimit}
import org.apache.spark.sql.kafka010.KafkaSourceOffset
import org.apache.spark.util.{ThreadUtils, Utils}

/**
 * The ends of a source's partitions, asked in the background while a real-time batch runs.
 *
 * Spark asks twice between two batches, and no record is read meanwhile. It gets the last answer instead, unless that is too
 * old because a broker does not answer: then the query waits for the broker, as it does without this class.
 */
private[tailrace] final class LatestOffsets(inner: ControlledStream.Kafka) {
  import LatestOffsets._

  /** The connector's client takes one question at a time, and a query that waits for its turn can be interrupted. */
  private val asking = new ReentrantLock
  @volatile private var question: Option[(Offset, ReadLimit)] = None
  @volatile private var answer: Option[Answer] = None

  /** How often the answer was forgotten: an answer to a question that was asked before that is not kept. */
  private var forgotten = 0L

  /** When the first question was asked that has no answer yet, not even a refusal; 0 if there is none. */
  @volatile private var unansweredNs = 0L
  private var thread: Option[ScheduledExecutorService] = None

  /** The ends of all partitions that the source has, as far as they are known. */
  def known: Map[TopicPartition, Long] = answer.map(_.ends).getOrElse(Map.empty)

  /** Forget the answer: the offsets that the question began with are not those of the topics. */
  def forget(): Unit = synchronized {
    forgotten += 1
    answer = None
  }

  /** Ask from now on what comes after these offsets. */
  def continueAt(start: Map[TopicPartition, Long]): Unit = synchronized {
    question = question.map { case (_, limit) => (KafkaSourceOffset(start), limit) }
    forget()
  }

  /**
   * How long a question has waited for its answer; 0 if none waits.
   *
   * Not the time since the last answer: on a busy machine the thread that asks may be late.
   */
  def unansweredMs: Long = unansweredNs match {
    case 0L => 0L
    case since => math.max(0L, (System.nanoTime() - since) / 1000000L)
  }

  /** Return the ends for the next batch, and ask on from now on. */
  def next(start: Offset, limit: ReadLimit): Offset = {
    question = Some((start, limit))
    val ends = recent(KafkaSourceOffset(start).partitionToOffsets).getOrElse(ask(start, limit).ends)
    begin()
    if (ends.isEmpty) null else KafkaSourceOffset(ends)
  }

  /**
   * Return the ends if they were asked a moment ago.
   *
   * @param read how far the query has read: the ends are not before that, unless a log has become shorter
   */
  def recent(read: Map[TopicPartition, Long]): Option[Map[TopicPartition, Long]] =
    answer.filter(System.nanoTime() - _.askedNs < MaxAgeNs).map { last =>
      last.ends.map { case (topicPartition, end) =>
        val isShorter = last.start.get(topicPartition).exists(_ > end)
        topicPartition -> (if (isShorter) end else math.max(end, read.getOrElse(topicPartition, end)))
      }
    }

  /** Stop polling. */
  def close(): Unit = synchronized(thread.foreach(_.shutdownNow()))

  private def begin(): Unit = synchronized {
    if (thread.isEmpty) {
      val started = ThreadUtils.newDaemonSingleThreadScheduledExecutor("tailrace-offsets")
      thread = Some(started)
      askLater(ShortestPauseMs)
    }
  }

  /** Ask after a pause, and again and again. */
  private def askLater(pauseMs: Long): Unit = synchronized {
    thread.filterNot(_.isShutdown).foreach(_.schedule((() => askLater(askAgain())): Runnable, pauseMs, MILLISECONDS))
  }

  /** Ask; return how long to pause before the next question. */
  private def askAgain(): Long = {
    val (before, beganNs) = (answer, System.nanoTime())
    try question.foreach { case (start, limit) => ask(start, limit) }
    catch {
      case failed if isAnswer(failed) => unansweredNs = 0L
      case NonFatal(_) => // the next question may be answered; the query itself asks if none is
      case _: InterruptedException => Thread.currentThread().interrupt() // closed
    }
    val hasChanged = before.map(_.ends) != answer.map(_.ends)
    pauseMs(if (hasChanged) System.nanoTime() - beganNs else Long.MaxValue)
  }

  private def ask(start: Offset, limit: ReadLimit): Answer = {
    asking.lockInterruptibly()
    try {
      val askedNs = System.nanoTime()
      if (unansweredNs == 0L) unansweredNs = askedNs
      val forgottenBefore = synchronized(forgotten)
      val ends = Option(inner.latestOffset(start, limit)).map(KafkaSourceOffset(_).partitionToOffsets).getOrElse(Map.empty)
      val latest = Answer(ends, KafkaSourceOffset(start).partitionToOffsets, askedNs)
      synchronized(if (forgotten == forgottenBefore) answer = Some(latest))
      unansweredNs = 0L
      latest
    } finally asking.unlock()
  }
}

private[tailrace] object LatestOffsets {

  /**
   * Let the connector close its client.
   *
   * The client waits until its question is answered or has timed out. No query should wait for a silent broker to stop.
   */
  def close(closeClient: () => Unit): Unit = {
    val closing = new Thread(() => Utils.tryLogNonFatalError(closeClient()), "tailrace-offsets-close")
    closing.setDaemon(true)
    closing.start()
    closing.join(CloseMs)
  }

  private val ShortestPauseMs = 500L
  private val LongestPauseMs = 1000L

  /** Ask at most for a tenth of the time: topics may have many partitions. */
  private val PausesPerQuestion = 9

  /** @param tookNs how long the question took */
  private def pauseMs(tookNs: Long): Long =
    math.max(ShortestPauseMs, math.min(LongestPauseMs, tookNs / 1000000L * PausesPerQuestion))
  private val CloseMs = 1000L

  /** An answer this old is not used: a broker has been silent for several questions. */
  private val MaxAgeNs = 3000000000L

  /** @param start where the batch began that ran when the question was asked */
  private final case class Answer(ends: Map[TopicPartition, Long], start: Map[TopicPartition, Long], askedNs: Long)

  /** Whether a broker has answered, for example that a topic does not exist. */
  @tailrec private def isAnswer(failed: Throwable): Boolean = failed match {
    case null | _: TimeoutException | _: DisconnectException => false
    case _: ApiException => true
    case _ => isAnswer(failed.getCause)
  }
}
