package org.apache.spark.sql.tailrace

import scala.collection.mutable

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{SparkListenerStageCompleted, SparkListenerStageSubmitted, SparkListenerTaskEnd, SparkListenerTaskStart}
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}

/**
 * When the tasks of each batch of a query start and end.
 *
 * Spark's progress reports contain the time for planning and for writing logs. They do not contain the time until every task
 * runs, nor the time that the tasks take to end. Both are part of the pause at a checkpoint.
 */
class BatchTimes(context: SparkContext, query: String) extends TaskListener(context) {
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
      if (times.size > BatchTimes.MaxBatches) times.remove(times.head._1)
    }
  }

  override def onTaskStart(start: SparkListenerTaskStart): Unit = synchronized {
    timesOf(start.stageId).foreach { batch =>
      batch.firstStart = Math.min(batch.firstStart, start.taskInfo.launchTime)
      batch.lastStart = Math.max(batch.lastStart, start.taskInfo.launchTime)
    }
  }

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = synchronized {
    timesOf(end.stageId).foreach { batch =>
      batch.firstEnd = Math.min(batch.firstEnd, end.taskInfo.finishTime)
      batch.lastEnd = Math.max(batch.lastEnd, end.taskInfo.finishTime)
    }
  }

  override def onStageCompleted(completed: SparkListenerStageCompleted): Unit = synchronized {
    batchOfStage.remove(completed.stageInfo.stageId)
  }

  /** The times of a batch: first stage submitted, first and last task started, first and last task ended. */
  def of(batchId: Long): Array[Long] = synchronized {
    times.get(batchId) match {
      case Some(batch) => Array(batch.submitted, batch.firstStart, batch.lastStart, batch.firstEnd, batch.lastEnd)
      case None => Array.empty
    }
  }

  private def timesOf(stage: Int): Option[Times] = batchOfStage.get(stage).flatMap(times.get)
}

object BatchTimes {
  /** Most batches that are remembered. */
  val MaxBatches = 100
}
