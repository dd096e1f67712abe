package org.apache.spark.sql.kafka010.tailrace

import java.io.FileNotFoundException

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog

/**
 * The ids of a query's topics, in a folder of its checkpoint that Spark does not read.
 *
 * It is a log like Spark's own, of which the last entry counts: a file system may be unable to replace a file in one step.
 * Only the driver writes it, under the lock of the checkpoint.
 */
private[tailrace] final class TopicRecord(spark: SparkSession, checkpoint: String) {
  import TopicRecord._

  private val folder = new Path(checkpoint, Folder).toString
  private lazy val log = new HDFSMetadataLog[Contents](spark, folder)

  /** Return what is recorded; nothing before the first run, and in a checkpoint that was written without Tailrace. */
  def contents: Option[Contents] = TopicRecord.synchronized {
    try new HDFSMetadataLog[Contents](spark, folder, readOnly = true).getLatest().map(_._2)
    catch { case _: FileNotFoundException => None }
  }

  /** Change what is recorded. */
  def update(change: Contents => Contents): Unit = TopicRecord.synchronized {
    val before = log.getLatest()
    val after = change(before.map(_._2).getOrElse(Contents()))
    if (!before.exists(_._2 == after)) {
      val number = before.map(_._1 + 1).getOrElse(0L)
      if (!log.add(number, after)) throw new IllegalStateException(s"another process writes to $folder")
      log.purge(number)
    }
  }
}

private[tailrace] object TopicRecord {
  private val Folder = "tailrace-topics"

  /**
   * @param sources the topics of each source, in the order of the sources
   * @param outputs the ids of the topics that the query writes to
   */
  final case class Contents(sources: List[Map[String, Recorded]] = Nil, outputs: Map[String, String] = Map.empty) {
    def source(number: Int): Map[String, Recorded] = sources.lift(number).getOrElse(Map.empty)

    def withSource(number: Int, topics: Map[String, Recorded]): Contents =
      copy(sources = sources.padTo(number + 1, Map.empty[String, Recorded]).updated(number, topics))
  }

  /**
   * A topic whose offsets are in the checkpoint.
   *
   * @param since the first batch that reads the topic with this id; the offsets where it starts are those of an older topic
   *   with the same name. [[Always]] if there was none.
   */
  final case class Recorded(id: String, since: Long)

  val Always = -1L
}
