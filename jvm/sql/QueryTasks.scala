package org.apache.spark.sql.tailrace

import java.util.Date

import org.apache.spark.{JobExecutionStatus, SparkContext}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper
import org.apache.spark.sql.kafka010.tailrace.KafkaTasks
import org.apache.spark.sql.streaming.StreamingQuery
import org.apache.spark.status.AppStatusStore
import org.apache.spark.status.api.v1.{StageData, StageStatus, TaskData}

/** The tasks of a running query: which of them have a slot, and which partitions are not read. */
class QueryTasks(query: StreamingQuery) {
  private val execution = query match {
    case wrapper: StreamingQueryWrapper => wrapper.streamingQuery
    case other => throw new IllegalArgumentException(s"not a query of this Spark session: ${other.getClass.getName}")
  }
  private val context: SparkContext = execution.sparkSession.sparkContext

  /**
   * The running stages, the source's first. For each the number of tasks, of tasks that run or have finished, of tasks that
   * have finished, and of tasks that wait for a retry, and the milliseconds since a task last got a slot.
   */
  def stages: Array[Array[Long]] = running.map { stage =>
    val attempts = attemptsOf(stage)
    Array[Long](
      stage.numTasks,
      attempts.started.size,
      stage.numCompleteTasks,
      attempts.failed.size,
      attempts.steadyMs(stage.submissionTime, System.currentTimeMillis()))
  }.toArray

  /** Whether any task of the query runs, including tasks that are about to end after a stop. */
  def atWork: Boolean = {
    val tracker = context.statusTracker
    tracker
      .getJobIdsForGroup(query.runId.toString)
      .flatMap(tracker.getJobInfo)
      .flatMap(_.stageIds)
      .flatMap(tracker.getStageInfo)
      .exists(_.numActiveTasks > 0)
  }

  /** The partitions whose tasks have no slot; empty if all tasks have one or no stage runs. */
  def unread: Array[String] = running.headOption match {
    case Some(stage) =>
      val read = Option(execution.lastExecution).toSeq.flatMap { last =>
        last.executedPlan.collect { case scan: RealTimeStreamScanExec => KafkaTasks.partitionsOf(scan.inputPartitions) }.flatten
      }
      val started = attemptsOf(stage).started
      if (read.size == stage.numTasks) read.indices.filterNot(started).map(read).toArray else Array.empty
    case None => Array.empty
  }

  /** The running stages, without those of a job that reads the static side of a join. */
  private def running: Seq[StageData] = {
    val store = context.statusStore
    val jobs = store.jobsList(java.util.Arrays.asList(JobExecutionStatus.RUNNING)).filter { job =>
      job.jobGroup.contains(query.runId.toString) && !job.jobTags.exists(_.startsWith("broadcast exchange"))
    }
    jobs.flatMap(_.stageIds).distinct.sorted.flatMap { id =>
      store.asOption(store.lastStageAttempt(id)).filter(_.status == StageStatus.ACTIVE)
    }
  }

  private def attemptsOf(stage: StageData): TaskAttempts =
    TaskAttempts.of(context.statusStore, stage.stageId, stage.attemptId)
}

/**
 * The attempts of a stage's tasks. A task that failed or lost its executor has several.
 *
 * Spark records an attempt when it starts; the stage's own counts follow up to a heartbeat later.
 */
class TaskAttempts(attempts: Seq[TaskData]) {

  /** The tasks that run or have finished. */
  val started: Set[Int] = attempts.filterNot(hasFailed).map(_.index).toSet

  /** The tasks that wait for a retry: all of their attempts have failed. */
  val failed: Set[Int] = attempts.map(_.index).toSet -- started

  /** The time since the last running attempt got its slot, or since the stage was submitted if none runs. */
  def steadyMs(submitted: Option[Date], now: Long): Long = {
    val launches = attempts.filter(_.status == "RUNNING").map(_.launchTime.getTime)
    launches.maxOption.orElse(submitted.map(_.getTime)).map(last => math.max(0L, now - last)).getOrElse(0L)
  }

  private def hasFailed(attempt: TaskData): Boolean = attempt.status == "FAILED" || attempt.status == "KILLED"
}

object TaskAttempts {
  def of(store: AppStatusStore, stage: Int, attempt: Int): TaskAttempts =
    new TaskAttempts(store.taskList(stage, attempt, Int.MaxValue))
}
