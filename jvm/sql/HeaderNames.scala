package org.apache.spark.sql.tailrace

/** The names of the engine's headers; `frames/names.py` has the same. */
object HeaderNames {
  // a record's origin, on outputs and on dead letters
  val Topic = "tailrace.topic"
  val Partition = "tailrace.partition"
  val Offset = "tailrace.offset"
  val EventTime = "tailrace.event_time"
  val Id = "tailrace.id"

  // on dead letters only
  val Reason = "tailrace.reason"
  val Error = "tailrace.error"
  val Pipeline = "tailrace.pipeline"
  val Time = "tailrace.time"
  val Attempt = "tailrace.attempt"
}
