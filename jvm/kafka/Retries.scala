package org.apache.spark.sql.kafka010.tailrace

import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.collection.mutable
import scala.concurrent.{Await, Future, Promise}
import scala.concurrent.duration.Duration
import scala.util.Try

import org.apache.kafka.common.TopicPartition

import org.apache.spark.TaskContext
import org.apache.spark.util.ThreadUtils

/**
 * The attempts of tasks that began after others had failed. Each must know what those have written.
 *
 * One read of the outputs serves all attempts that began before it: the tasks of a lost executor begin again together.
 *
 * @param read reads the outputs that exist, once those about the records of these partitions have settled
 */
private[tailrace] final class Retries(read: Set[Retries.Place] => Unit) {
  import Retries._

  private var thread: Option[ScheduledExecutorService] = None
  private val known = mutable.HashMap.empty[Long, Future[Unit]]

  /** The partitions about whose records unknown outputs may exist: those that the next read will settle, and the running one. */
  private var unread = Set.empty[Place]
  private var reading = Set.empty[Place]
  private var next: Option[Promise[Unit]] = None

  /** Whether all that failed attempts have written is known. */
  def isSettled: Boolean = synchronized(unread.isEmpty && reading.isEmpty)

  /** Note an attempt. When the result is there, all is known that was written before it. */
  def began(attempt: Long, places: Set[Place]): Future[Unit] = synchronized {
    known.getOrElseUpdate(
      attempt, {
        unread ++= places
        val promise = next.getOrElse(Promise[Unit]())
        if (next.isEmpty) started.schedule((() => look()): Runnable, TogetherMs, MILLISECONDS)
        next = Some(promise)
        promise.future
      })
  }

  /** Wait until all that failed attempts have written is known. No attempt may run. */
  def settle(): Unit = if (!isSettled) {
    val looked = Promise[Unit]()
    synchronized(started).execute(() => looked.complete(look()))
    Await.result(looked.future, Duration.Inf)
    synchronized(known.clear())
  }

  /** Read once for all attempts so far, in the one thread. */
  private def look(): Try[Unit] = {
    val promise = synchronized {
      reading = unread
      unread = Set.empty
      val its = next
      next = None
      its
    }
    val done = Try(if (reading.nonEmpty) read(reading))
    synchronized {
      if (done.isFailure) unread ++= reading
      reading = Set.empty
    }
    promise.foreach(_.complete(done))
    done
  }

  private def started: ScheduledExecutorService = {
    if (thread.isEmpty) thread = Some(ThreadUtils.newDaemonSingleThreadScheduledExecutor("tailrace-retries"))
    thread.get
  }

  def close(): Unit = synchronized(thread.foreach(_.shutdownNow()))
}

private[tailrace] object Retries {

  /** A partition and the number of the source that reads it. */
  type Place = (Int, TopicPartition)

  /** How long to wait for other attempts before a read. */
  private val TogetherMs = 100L

  /** The id of a task's attempt, if others have failed before it. */
  def of(context: TaskContext): Option[Long] =
    if (context.attemptNumber() > 0 || context.stageAttemptNumber() > 0) Some(context.taskAttemptId()) else None
}
