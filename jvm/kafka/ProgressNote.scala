package org.apache.spark.sql.kafka010.tailrace

import java.io.FileNotFoundException

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path
import org.apache.kafka.common.TopicPartition

import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset
import org.apache.spark.sql.kafka010.KafkaSourceOffset

/**
 * How far a query has come since its last commit, and where its results since then are.
 *
 * @param query the id of the query, which its checkpoint keeps
 * @param batch the batch that runs
 * @param isRealTime whether the batch is one of real time: its offsets are logged at its end, not at its beginning
 * @param isClosed whether the run has ended and saved everything, so that it has written nothing since
 * @param base where the batch began, for each source, as the checkpoint says it
 * @param positions the offsets before which every result and dead letter is acknowledged, for each source
 * @param ends offsets in the output topics before which nothing is about a record from `positions` on; None if they are unknown
 * @param begun the same for the beginnings of the last batches
 * @param metadata what Spark writes into its log with the offsets of the batch; None before that is known
 * @param fingerprint what decides whether, how often and where rows are written; None if it cannot be told
 */
private[tailrace] final case class ProgressNote(
    query: String,
    batch: Long,
    isRealTime: Boolean,
    isClosed: Boolean,
    base: List[ProgressNote.Offsets],
    positions: List[ProgressNote.Offsets],
    ends: Option[ProgressNote.Offsets],
    begun: Map[Long, ProgressNote.Offsets],
    metadata: Option[String],
    fingerprint: Option[String])

private[tailrace] object ProgressNote {
  type Offsets = Map[TopicPartition, Long]

  /** The number of records between two positions of each source, in the partitions that both have. */
  def records(from: Seq[Offsets], to: Seq[Offsets]): Long = from.zip(to).map { case (before, after) =>
    after.map { case (partition, offset) => math.max(0L, offset - before.getOrElse(partition, offset)) }.sum
  }.sum
}

/**
 * The notes of a query, in a folder of its checkpoint that Spark does not read.
 *
 * It is a log like Spark's own, of which the last entry counts: a file system may be unable to replace a file in one step. Only
 * the driver writes it, under the lock of the checkpoint.
 */
private[tailrace] final class ProgressNotes(spark: SparkSession, checkpoint: String) extends Logging {
  import ProgressNotes._

  private val folder = new Path(checkpoint, Folder).toString
  private lazy val entries = new HDFSMetadataLog[Entry](spark, folder)
  private lazy val first: Long = entries.getLatestBatchId().map(_ + 1).getOrElse(0L)
  private var written = 0L

  /** The last note, or why it cannot be read; None if there is none. An earlier one may lack a topic, and is not used. */
  def last: Option[Either[String, ProgressNote]] =
    try new HDFSMetadataLog[Entry](spark, folder, readOnly = true).getLatest().map(each => readable(each._2))
    catch {
      case _: FileNotFoundException => None
      case NonFatal(failed) =>
        logWarning("The note of the last run cannot be read", failed)
        Some(Left("the note of the last run cannot be read"))
    }

  private def readable(entry: Entry): Either[String, ProgressNote] =
    if (entry.version == Version) Right(noteOf(entry)) else Left("another version of Tailrace has written the note of the last run")

  def write(note: ProgressNote): Unit = synchronized {
    val number = first + written
    written += 1 // also after a failure, which may have left the file
    if (!entries.add(number, entryOf(note))) throw new IllegalStateException(s"another process writes to $folder")
    entries.purge(number)
  }
}

private[tailrace] object ProgressNotes {
  import ProgressNote.Offsets

  private val Folder = "tailrace-progress"
  private val Version = 1

  /** A note in the types that the log can write: offsets are JSON, as in Spark's own log. */
  final case class Entry(
      version: Int,
      query: String,
      batch: Long,
      isRealTime: Boolean,
      isClosed: Boolean,
      base: List[String],
      positions: List[String],
      ends: String,
      begun: Map[String, String],
      metadata: String,
      fingerprint: String)

  private def entryOf(note: ProgressNote): Entry = Entry(
    Version,
    note.query,
    note.batch,
    note.isRealTime,
    note.isClosed,
    note.base.map(jsonOf),
    note.positions.map(jsonOf),
    note.ends.map(jsonOf).getOrElse(""),
    note.begun.map { case (batch, ends) => batch.toString -> jsonOf(ends) },
    note.metadata.getOrElse(""),
    note.fingerprint.getOrElse(""))

  private def noteOf(entry: Entry): ProgressNote = ProgressNote(
    entry.query,
    entry.batch,
    entry.isRealTime,
    entry.isClosed,
    entry.base.map(offsetsOf),
    entry.positions.map(offsetsOf),
    nonEmpty(entry.ends).map(offsetsOf),
    entry.begun.map { case (batch, ends) => batch.toLong -> offsetsOf(ends) },
    nonEmpty(entry.metadata),
    nonEmpty(entry.fingerprint))

  private def nonEmpty(text: String): Option[String] = Option(text).filter(_.nonEmpty)

  private[tailrace] def jsonOf(offsets: Offsets): String = KafkaSourceOffset(offsets).json

  private[tailrace] def offsetsOf(json: String): Offsets = KafkaSourceOffset(SerializedOffset(json)).partitionToOffsets
}
