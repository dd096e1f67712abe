package org.apache.spark.sql.tailrace

/** The names of the headers with a record's origin, on outputs and on dead letters. */
object HeaderNames {
  val Topic = "tailrace.topic"
  val Partition = "tailrace.partition"
  val Offset = "tailrace.offset"
  val EventTime = "tailrace.event_time"
}
