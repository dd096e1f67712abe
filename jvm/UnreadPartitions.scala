package org.apache.spark.sql.tailrace

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.kafka010.tailrace.KafkaTasks
import org.apache.spark.sql.streaming.StreamingQuery

/** The partitions of a running real-time query whose tasks have no slot, which Spark tells nobody. */
object UnreadPartitions {

  /** Their names; nothing where every task of the sources has been started, or nothing runs right now. */
  def of(context: SparkContext, query: StreamingQuery): Array[String] = {
    val read = query match {
      case wrapper: StreamingQueryWrapper => Option(wrapper.streamingQuery.lastExecution).toSeq.flatMap(tasks)
      case _ => Seq.empty
    }
    sourceStage(context, query.runId.toString) match {
      case Some(stage) if stage.numTasks == read.size =>
        val started = context.statusStore.taskList(stage.stageId, stage.currentAttemptId, read.size).map(_.index).toSet
        read.zipWithIndex.collect { case (name, index) if !started(index) => name }.toArray
      case _ => Array.empty
    }
  }

  private def tasks(execution: org.apache.spark.sql.execution.QueryExecution): Seq[String] =
    execution.executedPlan.collect { case scan: RealTimeStreamScanExec => KafkaTasks.named(scan.inputPartitions) }.flatten

  /** The first of the stages that run: those after a shuffle are numbered after it. */
  private def sourceStage(context: SparkContext, group: String) = {
    val tracker = context.statusTracker
    tracker
      .getJobIdsForGroup(group)
      .flatMap(tracker.getJobInfo)
      .flatMap(_.stageIds)
      .flatMap(tracker.getStageInfo)
      .filter(_.numActiveTasks > 0)
      .sortBy(_.stageId)
      .headOption
  }
}
