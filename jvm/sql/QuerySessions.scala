package org.apache.spark.sql.tailrace

import java.{util => ju}

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.SparkSessionExtensions
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.ColumnarRule
import org.apache.spark.sql.execution.python.tailrace.RealTimeState

/** Creates the sessions of queries, each a clone of the user's. */
object QuerySessions {
  private val SparkVersions = Seq("4.3.")

  /** Rules for physical plans. They come only with a session's extensions, so each decides which queries it is for. */
  private val Rules: Seq[ColumnarRule] = Seq(RealTimeState, RealTimeOperators.Check)

  private val extended = ju.Collections.newSetFromMap(new ju.WeakHashMap[SparkSessionExtensions, java.lang.Boolean])

  /** Clone a session. If Tailrace knows this version of Spark, the clone has the rules; for other sessions nothing changes. */
  def cloneOf(session: SparkSession): SparkSession = {
    // The user's session shares its extensions with its clones.
    if (isKnown(SPARK_VERSION)) extended.synchronized {
      if (extended.add(session.extensions)) Rules.foreach(rule => session.extensions.injectColumnar(_ => rule))
    }
    session.cloneSession()
  }

  /** Whether the rules were tried with a version of Spark. */
  def isKnown(spark: String): Boolean = SparkVersions.exists(spark.startsWith)
}
