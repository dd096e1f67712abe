package org.apache.spark.sql.tailrace

import org.apache.spark.sql.{AnalysisException, DataFrame}
import org.apache.spark.sql.catalyst.plans.logical.{DeduplicateWithinWatermark, LogicalPlan, Union}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful.StreamingDeduplicateWithinWatermarkExec
import org.apache.spark.sql.execution.streaming.runtime.RealTimeModeAllowlist
import org.apache.spark.sql.internal.SQLConf

/**
 * Lets a query have an operator that works in real time but is not on Spark's allowlist: `dropDuplicatesWithinWatermark`.
 *
 * The allowlist is private, and a query is checked against all of it or not at all. So Spark's check is off for a query with that
 * operator, and [[Check]] takes its place: Spark's own check of the same plan, without that operator. A plan may change between two
 * batches, for example if a static table grows too large for a broadcast, so every batch is checked.
 */
object RealTimeOperators {
  /** The setting of a session whose queries are checked here. */
  private val IsChecked = "spark.tailrace.realTimeOperators"

  private val AllowlistCheck = SQLConf.STREAMING_REAL_TIME_MODE_ALLOWLIST_CHECK

  /** Switch from Spark's check to this one if a query needs that. */
  def allow(frame: DataFrame): Unit = {
    val rows = frame.asInstanceOf[Dataset[_]]
    val analyzed = rows.queryExecution.analyzed
    val conf = rows.sparkSession.sessionState.conf
    val isNeeded = hasAdditional(analyzed) && conf.getConf(AllowlistCheck)
    if (isNeeded && areAdditional(rows.sparkSession) && !hasAdditionalBelowUnion(analyzed)) {
      conf.setConfString(IsChecked, "true")
      conf.setConf(AllowlistCheck, false)
    }
  }

  /** Check the operators of a query that is to run on a session, and fail as Spark does. */
  private[tailrace] def check(session: SparkSession, executed: SparkPlan): Unit =
    RealTimeModeAllowlist.checkAllowedPhysicalOperator(
      if (areAdditional(session)) withoutAdditional(executed) else executed,
      throwException = true)

  /** Spark refuses all state below a union in real time, but does not know the additional operators there. */
  private[tailrace] def checkUnions(analyzed: LogicalPlan): Unit =
    if (hasAdditionalBelowUnion(analyzed)) {
      throw new AnalysisException(
        errorClass = "STREAMING_REAL_TIME_MODE.STATEFUL_OPERATORS_BEFORE_UNION_NOT_SUPPORTED",
        messageParameters = Map.empty[String, String])
    }

  private def areAdditional(session: SparkSession): Boolean = session.sessionState.columnarRules.contains(Check)

  private def hasAdditional(plan: LogicalPlan): Boolean = plan.exists {
    case within: DeduplicateWithinWatermark => within.isStreaming
    case _ => false
  }

  private def hasAdditionalBelowUnion(plan: LogicalPlan): Boolean = plan.exists {
    case union: Union => hasAdditional(union)
    case _ => false
  }

  private def withoutAdditional(executed: SparkPlan): SparkPlan = executed.transformUp {
    case within: StreamingDeduplicateWithinWatermarkExec => within.child
  }

  /** Checks the plan of every batch, in sessions that have switched to it. */
  private[tailrace] object Check extends ColumnarRule {
    override val postColumnarTransitions: Rule[SparkPlan] = new Rule[SparkPlan] {
      override def apply(executed: SparkPlan): SparkPlan = {
        if (conf.getConfString(IsChecked, "false").toBoolean) {
          RealTimeModeAllowlist.checkAllowedPhysicalOperator(withoutAdditional(executed), throwException = true)
        }
        executed
      }
    }
  }
}
