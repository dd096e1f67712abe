package org.apache.spark.sql.tailrace

/** The headers that say where a record came from: of outputs and of dead letters alike. */
object HeaderNames {
  val Topic = "tailrace.topic"
  val Partition = "tailrace.partition"
  val Offset = "tailrace.offset"
  val EventTime = "tailrace.event_time"
}
