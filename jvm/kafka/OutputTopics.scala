package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The topics that a query writes to. If one is created again, no input is lost, but earlier results are.
 *
 * @param options the options of the sink
 * @param location the checkpoint
 */
final class OutputTopics(
    spark: SparkSession,
    options: ju.Map[String, String],
    topics: ju.List[String],
    location: String) {
  /** Afterwards the checkpoint may belong to another process. */
  @volatile private var isClosed = false
  private val ids = new TopicIds(new CaseInsensitiveStringMap(options))
  private val record = new TopicRecord(spark, location)

  /** Record the ids of the topics; return the topics that were created again since they were recorded. */
  def look(): Array[String] = {
    val now = ids.of(topics.asScala.toSet).map { case (topic, its) => topic -> its.id }
    val before = record.contents.map(_.outputs).getOrElse(Map.empty)
    if (isClosed) return Array.empty
    val recreated = now.filter { case (topic, id) => id != TopicIds.NoId && before.get(topic).exists(_ != id) }
    if (now.exists { case (topic, id) => !before.get(topic).contains(id) }) {
      record.update(contents => contents.copy(outputs = before ++ now))
    }
    recreated.keys.toArray.sorted
  }

  def close(): Unit = {
    isClosed = true
    ids.close()
  }
}
