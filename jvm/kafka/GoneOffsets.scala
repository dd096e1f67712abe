package org.apache.spark.sql.kafka010.tailrace

import scala.collection.mutable

import org.apache.kafka.common.TopicPartition

/**
 * An offset of a reader that does not exist any more, or before which its partition had other records.
 *
 * @param position the offset of the next record
 * @param divergent the first offset whose record is another one now, if a broker has said that: one without the latest records
 *   has become the leader
 */
private[tailrace] case class GoneOffset(topicPartition: TopicPartition, position: Long, divergent: Option[Long])

/** What the readers of a source have said of offsets that do not exist, until the next batch is planned. */
private[tailrace] final class GoneOffsets {
  import GoneOffsets._

  private val reported = mutable.Map.empty[TopicPartition, GoneOffset]

  /** At which offset each partition was refused last, and in how many batches in a row. */
  private val refused = mutable.Map.empty[TopicPartition, (Long, Int)]

  def report(gone: Seq[GoneOffset]): Unit = synchronized(gone.foreach(each => reported(each.topicPartition) = each))

  /** Return where the partitions continue that have had other records before these offsets. */
  def divergent(from: Map[TopicPartition, Long]): Map[TopicPartition, Long] = synchronized {
    for {
      (partition, gone) <- reported.toMap
      offset <- gone.divergent if from.get(partition).exists(_ > offset)
    } yield partition -> offset
  }

  /**
   * Forget what was said, because the next batch is planned.
   *
   * @param from where it starts
   * @throws RecordsLostException if a partition starts again at an offset that was refused in several batches
   */
  def planned(from: Map[TopicPartition, Long]): Unit = synchronized {
    val again = reported.keySet.toSet.flatMap((each: TopicPartition) => from.get(each).map(each -> _))
    val counted = again.map { case (partition, offset) =>
      val before = refused.get(partition).filter(_._1 == offset).map(_._2).getOrElse(0)
      partition -> (offset, before + 1)
    }.toMap
    reported.clear()
    refused.clear()
    refused ++= counted
    counted.find(_._2._2 >= MostRefusals).foreach { case (partition, (offset, _)) =>
      throw new RecordsLostException(RecordsLost.refused(partition, offset))
    }
  }
}

private[tailrace] object GoneOffsets {

  /** Brokers may disagree for a moment after a change of the leader, but not for so many batches. */
  private val MostRefusals = 10
}
