package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.kafka.common.TopicPartition

/** The outputs of a query cannot be read, so that it is unknown which exist. */
final class GuardUnreadable(val topic: String, val why: String)
    extends RuntimeException(s"the outputs in topic $topic cannot be read: $why")

/**
 * The outputs of a query that exist already and must not be written again.
 *
 * It does not change.
 */
final class OutputGuard private {

  /** The number of outputs in it. */
  def size: Long = 0L

  /** The offset after the last record of a source's partition that has an output in it; 0 if there is none. */
  def endOf(source: Int, topicPartition: TopicPartition): Long = 0L

  /** What a task that reads a partition needs. */
  def part(source: Int, topicPartition: TopicPartition): GuardPart = GuardPart.Empty
}

object OutputGuard {
  val Empty: OutputGuard = new OutputGuard

  /**
   * Read the outputs of a query. It waits until none has come for a second.
   *
   * @param producer the configuration of the producer that wrote them
   * @param query the id of the query
   * @param ends where to begin in each partition of the output topics; a partition that is missing here is read as a whole
   * @param progress gets the number of records that were read and the number of all, about once a second
   */
  def read(
      producer: ju.Map[String, Object],
      query: String,
      ends: Map[TopicPartition, Long],
      progress: (Long, Long) => Unit = (_, _) => ()): OutputGuard =
    throw new UnsupportedOperationException("not yet")
}

/** The existing outputs of the records of one partition. */
final class GuardPart(val end: Long) extends Serializable {

  /** Whether an output exists. */
  def contains(topic: String, maker: String, offset: Long, index: Int): Boolean = false
}

object GuardPart {
  val Empty: GuardPart = new GuardPart(0L)
}
