package org.apache.spark.sql.kafka010.tailrace

import org.apache.kafka.common.TopicPartition

/**
 * Where a reader is in a partition.
 *
 * @param source the number of the source in the query, which may read one topic twice
 * @param task the number of its task in the stage
 * @param position the offset of the next record
 * @param safe the results and dead letters of all records before this offset are acknowledged
 * @param records the number of records that it has read in this batch
 * @param lastMs the timestamp of the last of them; 0 if there is none
 */
private[tailrace] case class ReaderPosition(
    source: Int,
    topicPartition: TopicPartition,
    task: Int,
    position: Long,
    safe: Long,
    records: Long,
    bytes: Long,
    lastMs: Long,
    waits: Waiting)

/**
 * What a reader waits for.
 *
 * @param forWhat `records`, or `downstream` while the query works on what it was given; empty if no reader runs
 * @param ms for how long
 */
private[tailrace] case class Waiting(forWhat: String, ms: Long)

private[tailrace] object Waiting {
  private val Records = "records"
  private val Downstream = "downstream"
  val Nothing: Waiting = Waiting("", 0)

  /** Before the query asks for its first record. */
  val NotAsked = 0L

  /** Pack a moment and what begins then. */
  def since(nowNs: Long, isForRecords: Boolean): Long = (nowNs << 2) | (if (isForRecords) 3L else 1L)

  /**
   * Unpack what [[since]] has packed.
   *
   * @param pythonNs how long a Python worker has owed a reply; a reader can wait for records at the same time
   */
  def of(packed: Long, nowNs: Long, pythonNs: Long): Waiting =
    if (pythonNs > 0) Waiting(Downstream, pythonNs / 1000000L)
    else if (packed == NotAsked) Nothing
    else Waiting(if ((packed & 2L) != 0) Records else Downstream, math.max(0L, nowNs - (packed >> 2)) / 1000000L)
}
