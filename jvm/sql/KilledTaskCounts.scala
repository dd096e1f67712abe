package org.apache.spark.sql.tailrace

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.SparkListenerTaskEnd
import org.apache.spark.util.AccumulatorV2

/**
 * Adds the counts of tasks that ended after their query was stopped.
 *
 * Spark merges the counts of every task, but not once its job was cancelled, which is how every query in real time
 * ends. They still come with the event that tells of the task's end.
 */
class KilledTaskCounts(context: SparkContext, counts: AccumulatorV2[_, _]) extends TaskWatch(context) {

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = {
    val alreadyMerged = end.taskInfo.accumulables.exists(_.id == counts.id)
    if (!alreadyMerged && end.taskMetrics != null) {
      end.taskMetrics.accumulators().foreach {
        case sent if sent.isRegistered && sent.id == counts.id =>
          counts.asInstanceOf[AccumulatorV2[Any, Any]].merge(sent.asInstanceOf[AccumulatorV2[Any, Any]])
        case _ =>
      }
    }
  }
}
