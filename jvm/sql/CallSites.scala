package org.apache.spark.sql.tailrace

import org.apache.spark.sql.catalyst.trees.{CurrentOrigin, Origin}

/** Sets the user's call and line for the plan nodes that this thread creates next. */
object CallSites {
  def set(call: String, line: String): Unit =
    CurrentOrigin.set(Origin(pysparkErrorContext = Some((call, line))))

  def clear(): Unit = CurrentOrigin.reset()
}
