package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.jdk.CollectionConverters._

import org.apache.kafka.common.TopicPartition
import org.json4s.JsonAST.JArray
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset
import org.apache.spark.sql.kafka010.KafkaSourceOffset
import org.apache.spark.sql.kafka010.tailrace.TopicIds.NoId
import org.apache.spark.sql.kafka010.tailrace.TopicRecord.Recorded
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Finds the records that a query has not read and that are gone, before it starts. */
object SourceLosses {

  /**
   * @param location the checkpoint
   * @param committed its last batch
   * @param starts the offsets of each source in that batch
   * @return what is lost, as JSON
   */
  def find(frame: DataFrame, location: String, committed: Long, starts: ju.List[String]): String = {
    val recorded = new TopicRecord(frame.asInstanceOf[Dataset[_]].sparkSession, location).contents
    val sources = SourceControl.sources(frame)
    val lost = for {
      // Other sources, or one that is used twice, have other numbers there. The query compares its topics when it runs.
      ((options, start), source) <- if (sources.length == starts.size) sources.zip(starts.asScala).zipWithIndex else Nil
      each <- lostBy(options, offsetsOf(start), recorded.map(_.source(source)).getOrElse(Map.empty), committed)
    } yield each.json(accepted = !SourceControl.failsOnDataLoss(options))
    compact(render(JArray(lost.toList)))
  }

  private def offsetsOf(start: String): Map[TopicPartition, Long] =
    KafkaSourceOffset(SerializedOffset(start)).partitionToOffsets

  private def lostBy(
      options: CaseInsensitiveStringMap,
      positions: Map[TopicPartition, Long],
      recorded: Map[String, Recorded],
      committed: Long): Seq[RecordsLost] = {
    val ids = new TopicIds(options)
    try {
      val topics = ids.of(positions.keySet.map(_.topic))
      val recreated = topics.keySet.filter { name =>
        val now = topics(name).id
        recorded.get(name).exists(before => before.id != NoId && now != NoId && before.id != now)
      }
      // An old topic's positions mean nothing in the new one.
      val known = positions.filter { case (each, _) =>
        topics.get(each.topic).exists(_.partitions.contains(each.partition)) &&
        !recreated(each.topic) && !recorded.get(each.topic).exists(_.since > committed)
      }
      recreated.toSeq.sorted.map(RecordsLost.recreated(_, positions)) ++ outside(ids, known)
    } finally ids.close()
  }

  /** What is lost of partitions whose first record is after a position, or whose end is before it. */
  private def outside(ids: TopicIds, positions: Map[TopicPartition, Long]): Seq[RecordsLost] = {
    val (firsts, ends) = (ids.firstOffsets(positions.keySet), ids.endOffsets(positions.keySet))
    positions.toSeq.sortBy(_._1.toString).flatMap { case (partition, position) =>
      if (firsts(partition) > position) Some(RecordsLost.deleted(partition, position, firsts(partition)))
      else if (ends(partition) < position) Some(RecordsLost.shorter(partition, position, ends(partition)))
      else None
    }
  }
}
