package org.apache.spark.sql.tailrace

import org.apache.spark.sql.catalyst.trees.{CurrentOrigin, Origin}

/** Which line of the user's makes the plan nodes that this thread is about to make. */
object CallSites {
  def at(call: String, line: String): Unit =
    CurrentOrigin.set(Origin(pysparkErrorContext = Some((call, line))))

  def nowhere(): Unit = CurrentOrigin.reset()
}
