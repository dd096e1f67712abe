package org.apache.spark.sql.tailrace

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.SparkListenerTaskEnd
import org.apache.spark.util.AccumulatorV2

/**
 * Adds the counts of tasks that end after their query was stopped.
 *
 * Spark does not merge the counts of a task whose job was cancelled, and a real-time query that is stopped at once ends with a
 * cancelled job. The event of the task's end still has them.
 */
class KilledTaskCounts(context: SparkContext, counts: AccumulatorV2[_, _]) extends TaskListener(context) {

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = {
    val alreadyMerged = end.taskInfo.accumulables.exists(_.id == counts.id)
    if (!alreadyMerged && end.taskMetrics != null) {
      end.taskMetrics.accumulators().foreach {
        case update if update.isRegistered && update.id == counts.id =>
          counts.asInstanceOf[AccumulatorV2[Any, Any]].merge(update.asInstanceOf[AccumulatorV2[Any, Any]])
        case _ =>
      }
    }
  }
}
