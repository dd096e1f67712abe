package org.apache.spark.sql.kafka010.tailrace

import org.apache.kafka.common.TopicPartition
import org.json4s.JsonAST.{JBool, JField, JObject, JString}

/**
 * Records that were not read and are gone.
 *
 * @param kind `recreated`: the topic was deleted and created again; `deleted`: the topic deletes old records; `shorter`: the
 *   end of the partition is before the query's position; `divergent`: the partition has other records than those that were
 *   read; `refused`: nobody knows why the position is refused
 * @param topic the topic, or the partition
 * @param offsets the positions of the query, and what is there now, in words
 */
private[tailrace] final case class RecordsLost(kind: String, topic: String, offsets: String) {

  /** The message of an error that ends the query; `conditions/sources.py` recognises it. */
  def message: String = s"TAILRACE_RECORDS_LOST $kind in $topic: $offsets."

  /** @param accepted whether the query may continue without these records */
  def json(accepted: Boolean): JObject = JObject(
    JField("kind", JString(kind)),
    JField("topic", JString(topic)),
    JField("offsets", JString(offsets)),
    JField("accepted", JBool(accepted)))
}

private[tailrace] object RecordsLost {
  def recreated(topic: String, positions: Map[TopicPartition, Long]): RecordsLost = {
    val ofTopic = positions.toSeq.filter(_._1.topic == topic).sortBy(_._1.partition)
    val offsets = ofTopic.map { case (each, position) => s"$position in partition ${each.partition}" }
    RecordsLost("recreated", topic, offsets.mkString(", "))
  }

  def deleted(partition: TopicPartition, position: Long, first: Long): RecordsLost =
    RecordsLost("deleted", partition.toString, s"$position to ${first - 1}")

  def shorter(partition: TopicPartition, position: Long, end: Long): RecordsLost =
    RecordsLost("shorter", partition.toString, s"$position and $end")

  def divergent(partition: TopicPartition, position: Long, first: Long): RecordsLost =
    RecordsLost("divergent", partition.toString, s"$first to ${position - 1}")

  def refused(partition: TopicPartition, position: Long): RecordsLost =
    RecordsLost("refused", partition.toString, s"$position")
}

/** Ends a query whose topics do not exist any more; `conditions/sources.py` recognises the message. */
private[tailrace] final class TopicsMissingException(topics: Set[String], cause: Throwable)
    extends RuntimeException(s"TAILRACE_TOPICS_MISSING ${topics.toSeq.sorted.mkString(", ")}.", cause)

/** Ends a query that must not continue without records that are gone. */
private[tailrace] final class RecordsLostException(val lost: RecordsLost) extends RuntimeException(lost.message)
