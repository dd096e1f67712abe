package org.apache.spark.sql.tailrace

import org.apache.spark.{JobExecutionStatus, SparkContext}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.kafka010.tailrace.KafkaTasks
import org.apache.spark.sql.streaming.StreamingQuery
import org.apache.spark.status.api.v1.StageStatus

/** The tasks of a running query: which have a slot, and which partitions those without one would read. */
class QueryTasks(query: StreamingQuery) {
  private val execution = query match {
    case wrapper: StreamingQueryWrapper => wrapper.streamingQuery
    case other => throw new IllegalArgumentException(s"not a query of this Spark: ${other.getClass.getName}")
  }
  private val context: SparkContext = execution.sparkSession.sparkContext

  /** Of each stage that runs, the source's first: how many tasks it has, how many got a slot, how many have ended. */
  def stages: Array[Array[Int]] = running.map { case (stage, started) =>
    Array(stage.numTasks, started, stage.numCompleteTasks)
  }.toArray

  /** Whether a task of the query is at work, also one that is about to end because the query was stopped. */
  def atWork: Boolean = {
    val tracker = context.statusTracker
    tracker
      .getJobIdsForGroup(query.runId.toString)
      .flatMap(tracker.getJobInfo)
      .flatMap(_.stageIds)
      .flatMap(tracker.getStageInfo)
      .exists(_.numActiveTasks > 0)
  }

  /** The partitions whose tasks have no slot; nothing where all have one, or nothing runs right now. */
  def unread: Array[String] = running.headOption match {
    case Some((stage, _)) =>
      val read = Option(execution.lastExecution).toSeq.flatMap { last =>
        last.executedPlan.collect { case scan: RealTimeStreamScanExec => KafkaTasks.named(scan.inputPartitions) }.flatten
      }
      val started = startedTasks(stage.stageId, stage.attemptId, stage.numTasks)
      if (read.size == stage.numTasks) read.indices.filterNot(started).map(read).toArray else Array.empty
    case None => Array.empty
  }

  /**
   * The stages that run and the number of their tasks that were started. Spark notes a task at once, its stage's own
   * counts up to a heartbeat later. A job that reads the static side of a join is not the query's flow.
   */
  private def running = {
    val store = context.statusStore
    val jobs = store.jobsList(java.util.Arrays.asList(JobExecutionStatus.RUNNING)).filter { job =>
      job.jobGroup.contains(query.runId.toString) && !job.jobTags.exists(_.startsWith("broadcast exchange"))
    }
    jobs.flatMap(_.stageIds).distinct.sorted.flatMap { id =>
      store.asOption(store.lastStageAttempt(id)).filter(_.status == StageStatus.ACTIVE).map { stage =>
        (stage, startedTasks(id, stage.attemptId, stage.numTasks).size)
      }
    }
  }

  private def startedTasks(stage: Int, attempt: Int, most: Int): Set[Int] =
    context.statusStore.taskList(stage, attempt, most).map(_.index).toSet
}
