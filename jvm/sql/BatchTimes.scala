package org.apache.spark.sql.tailrace

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListenerStageCompleted, SparkListenerStageSubmitted, SparkListenerTaskEnd, SparkListenerTaskStart}
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

/**
 * When the tasks of each batch of a query started and ended.
 *
 * A batch's own progress says how long planning and the writing of logs took, but not how long the driver and the
 * scheduler need until every task runs, nor how long the tasks take to end. Both are part of the pause at a boundary.
 */
class BatchTimes(context: SparkContext, query: String) extends TaskWatch(context) {
  private final class Times(val submitted: Long) {
    var firstStart = Long.MaxValue
    var lastStart = 0L
    var firstEnd = Long.MaxValue
    var lastEnd = 0L
  }

  private val batchOfStage = mutable.Map.empty[Int, Long]
  private val times = mutable.LinkedHashMap.empty[Long, Times]

  override def onStageSubmitted(submitted: SparkListenerStageSubmitted): Unit = synchronized {
    for {
      properties <- Option(submitted.properties)
      if properties.getProperty(StreamExecution.QUERY_ID_KEY) == query
      batch <- Option(properties.getProperty(MicroBatchExecution.BATCH_ID_KEY)).flatMap(_.toLongOption)
    } {
      batchOfStage(submitted.stageInfo.stageId) = batch
      times.getOrElseUpdate(batch, new Times(submitted.stageInfo.submissionTime.getOrElse(0L)))
      if (times.size > BatchTimes.Kept) times.remove(times.head._1)
    }
  }

  override def onTaskStart(start: SparkListenerTaskStart): Unit = synchronized {
    timesOf(start.stageId).foreach { found =>
      found.firstStart = Math.min(found.firstStart, start.taskInfo.launchTime)
      found.lastStart = Math.max(found.lastStart, start.taskInfo.launchTime)
    }
  }

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = synchronized {
    timesOf(end.stageId).foreach { found =>
      found.firstEnd = Math.min(found.firstEnd, end.taskInfo.finishTime)
      found.lastEnd = Math.max(found.lastEnd, end.taskInfo.finishTime)
    }
  }

  override def onStageCompleted(completed: SparkListenerStageCompleted): Unit = synchronized {
    batchOfStage.remove(completed.stageInfo.stageId)
  }

  /** For a batch: when its first stage was submitted, its first and last task started, its first and last task ended. */
  def of(batch: Long): Array[Long] = synchronized {
    times.get(batch) match {
      case Some(found) => Array(found.submitted, found.firstStart, found.lastStart, found.firstEnd, found.lastEnd)
      case None => Array.empty
    }
  }

  private def timesOf(stage: Int): Option[Times] = batchOfStage.get(stage).flatMap(times.get)
}

object BatchTimes {
  /** How many batches are remembered. */
  val Kept = 100
}
