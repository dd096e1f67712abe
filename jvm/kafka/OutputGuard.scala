package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.kafka.common.TopicPartition
import org.roaringbitmap.longlong.Roaring64NavigableMap

/** The outputs of a query cannot be read, so that it is unknown which exist. */
final class GuardUnreadable(val topic: String, val why: String)
    extends RuntimeException(s"the outputs in topic $topic cannot be read: $why")

/**
 * The outputs of a query that exist already and must not be written again.
 *
 * It does not change, and any thread may ask it.
 */
final class OutputGuard private[tailrace] (parts: Map[(Int, TopicPartition), GuardPart]) {

  /** The number of outputs in it. */
  def size: Long = parts.values.map(_.size).sum

  private val ends: Map[TopicPartition, Long] = parts.groupMapReduce(_._1._2)(_._2.end)(math.max)

  /** The offset after the last record of a partition that has an output in it, whichever source read it; 0 if there is none. */
  def endOf(topicPartition: TopicPartition): Long = ends.getOrElse(topicPartition, 0L)

  /** What a task that reads a partition needs. */
  def part(source: Int, topicPartition: TopicPartition): GuardPart = parts.getOrElse((source, topicPartition), GuardPart.Empty)
}

object OutputGuard {
  val Empty: OutputGuard = new OutputGuard(Map.empty)

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
    read(producer, query, ends, progress, Settling.All)

  /** Read the outputs of a query, and wait until none has come for a second about the records of some partitions. */
  private[tailrace] def readSettled(
      producer: ju.Map[String, Object],
      query: String,
      ends: Map[TopicPartition, Long],
      places: Set[Retries.Place]): OutputGuard = read(producer, query, ends, (_, _) => (), Settling.Of(places))

  private def read(
      producer: ju.Map[String, Object],
      query: String,
      ends: Map[TopicPartition, Long],
      progress: (Long, Long) => Unit,
      settling: Settling): OutputGuard =
    if (ends.isEmpty) {
      Empty
    } else {
      val reader = new GuardReader(producer, query, ends, progress, settling)
      try reader.read()
      finally reader.close()
    }
}

/**
 * The existing outputs of the records of one partition.
 *
 * @param end the offset after the last of these records
 * @param outputs the offsets of the records by output topic, maker and index
 */
final class GuardPart private[tailrace] (val end: Long, outputs: ju.Map[GuardPart.Kind, ju.Map[Integer, Roaring64NavigableMap]])
    extends Serializable {

  /** Whether an output exists. */
  def contains(topic: String, maker: String, offset: Long, index: Int): Boolean = {
    val byIndex = if (offset < end) outputs.get(GuardPart.Kind(topic, maker)) else null
    val offsets = if (byIndex == null) null else byIndex.get(index)
    offsets != null && offsets.contains(offset)
  }

  private[tailrace] def size: Long = {
    var total = 0L
    outputs.values.forEach(_.values.forEach(offsets => total += offsets.getLongCardinality))
    total
  }
}

object GuardPart {
  val Empty: GuardPart = new GuardPart(0L, ju.Map.of())

  /** The outputs of one maker in one topic. */
  private[tailrace] case class Kind(topic: String, maker: String)

  /** Collects what a part contains. */
  private[tailrace] final class Builder {
    private val outputs = new ju.HashMap[Kind, ju.Map[Integer, Roaring64NavigableMap]]
    private var end = 0L

    def add(topic: String, id: OutputId): Unit = {
      val byIndex = outputs.computeIfAbsent(Kind(topic, id.maker), _ => new ju.HashMap)
      byIndex.computeIfAbsent(id.index, _ => new Roaring64NavigableMap).addLong(id.offset)
      end = math.max(end, id.offset + 1)
    }

    def result(): GuardPart = {
      outputs.values.forEach(_.values.forEach(offsets => { offsets.runOptimize(); () }))
      new GuardPart(end, outputs)
    }
  }
}
