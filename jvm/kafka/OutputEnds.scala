package org.apache.spark.sql.kafka010.tailrace

import org.apache.kafka.common.TopicPartition

import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Asks for the ends of a query's output topics.
 *
 * @param options the options of the sink
 */
private[tailrace] final class OutputEnds(options: CaseInsensitiveStringMap, first: Set[String]) {
  import OutputEnds._

  private val brokers = new TopicIds(options)
  private var topics = first
  private var partitions = Set.empty[TopicPartition]
  private var looks = 0

  /** Also ask for a topic from now on. */
  def add(topic: String): Unit = synchronized {
    topics += topic
    partitions = Set.empty
  }

  /**
   * The offsets after the last records of all partitions. New partitions are looked for now and then; a topic that does not exist
   * yet has one, without records.
   */
  def ask(): Map[TopicPartition, Long] = synchronized {
    if (partitions.isEmpty || looks % LooksPerDescription == 0) {
      partitions = brokers.of(topics).flatMap { case (topic, its) => its.partitions.map(new TopicPartition(topic, _)) }.toSet
    }
    looks += 1
    val missing = (topics -- partitions.map(_.topic)).map(new TopicPartition(_, 0) -> 0L)
    brokers.endOffsets(partitions) ++ missing
  }

  def close(): Unit = brokers.close()
}

private object OutputEnds {
  private val LooksPerDescription = 10
}
