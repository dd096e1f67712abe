package org.apache.spark.sql.kafka010.tailrace

import org.apache.hadoop.fs.Path
import org.json4s.JsonAST.{JBool, JField, JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.{CheckpointFileManager, CommitLog, OffsetSeq, OffsetSeqLog, OffsetSeqMetadata}
import org.apache.spark.sql.execution.streaming.runtime.{SerializedOffset, StreamMetadata}
import org.apache.spark.sql.kafka010.tailrace.ProgressNote.Offsets

/**
 * What the last run has left, after the checkpoint was moved as far forward as its note allows.
 *
 * @param query the id of the query; None before its first run
 * @param ends offsets in the output topics before which nothing is about a record that will be read; None if they are unknown
 * @param isClosed whether that run has ended and saved everything
 * @param fingerprint what decided then whether, how often and where rows are written
 * @param advanced how many records the checkpoint was moved forward
 * @param unused why the note could not be used; empty if it could, or if there is none
 * @param isFresh whether no batch was ever saved or begun
 */
final case class Resumed(
    query: Option[String],
    private[tailrace] val ends: Option[Offsets],
    isClosed: Boolean,
    fingerprint: Option[String],
    advanced: Long,
    unused: String,
    isFresh: Boolean) {

  /** The facts as JSON, for Python. */
  def json: String = compact(render(JObject(
    JField("knows_results", JBool(ends.isDefined)),
    JField("is_closed", JBool(isClosed)),
    JField("fingerprint", JString(fingerprint.getOrElse(""))),
    JField("advanced", JInt(advanced)),
    JField("unused", JString(unused)),
    JField("is_fresh", JBool(isFresh)))))
}

/** Moves a checkpoint forward to what a run has noted before it ended. The checkpoint must be locked. */
object ProgressResume {

  /** Continue where the last run was, in Spark's own format. A checkpoint is never moved backwards. */
  def resume(spark: SparkSession, location: String): Resumed = new CheckpointAdvance(spark, location).resume()
}

private final class CheckpointAdvance(spark: SparkSession, location: String) {

  /** Real time needs it. */
  private val commitVersion = CommitLog.VERSION_2
  private val files = CheckpointFileManager.create(new Path(location), spark.sessionState.newHadoopConf())
  private lazy val offsets = new OffsetSeqLog(spark, new Path(location, "offsets").toString)
  private lazy val commits = new CommitLog(spark, new Path(location, "commits").toString)

  def resume(): Resumed = {
    val query = StreamMetadata.read(new Path(location, "metadata"), spark.sessionState.newHadoopConf()).map(_.id)
    val committed = lastOf("commits")
    val note = new ProgressNotes(spark, location).last.filter(each => query.contains(each.query))
    val isFresh = committed < 0 && lastOf("offsets") < 0 && note.isEmpty
    val resumed = Resumed(query, None, isClosed = false, note.flatMap(_.fingerprint), 0L, "", isFresh)
    note match {
      case None => resumed
      case Some(its) if its.batch <= committed => resumed.copy(ends = its.ends, isClosed = its.isClosed)
      case Some(its) if its.batch == committed + 1 => advance(its, committed, resumed)
      case Some(its) =>
        val why = s"the checkpoint ends with batch $committed, and the note of the last run is about batch ${its.batch}"
        resumed.copy(ends = its.begun.get(committed + 1), unused = why)
    }
  }

  private def advance(note: ProgressNote, committed: Long, resumed: Resumed): Resumed = {
    val beginning = resumed.copy(ends = note.begun.get(note.batch))
    if (!note.isRealTime) beginning // Spark repeats the batch, whose end is in its log
    else obstacle(note, committed) match {
      case Some(why) => beginning.copy(unused = why)
      case None =>
        val moved = ProgressNote.sum(note.positions) - ProgressNote.sum(startOf(note))
        // Spark logs the end of a real-time batch only when all of it is written. It lacks the commit, no more.
        val isComplete = lastOf("offsets") == note.batch
        if (isComplete || note.positions != note.base) write(note, committed, isComplete)
        resumed.copy(ends = note.ends, advanced = moved)
    }
  }

  /** Why the checkpoint cannot be moved forward; None if it can. */
  private def obstacle(note: ProgressNote, committed: Long): Option[String] = {
    val logged = lastOf("offsets")
    if (logged > note.batch) Some(s"its log of offsets is at batch $logged already, and the note is about batch ${note.batch}")
    else if (note.metadata.isEmpty) Some("the last run ended before its first batch had begun")
    else if (note.base.isEmpty || note.positions.length != note.base.length) Some("the note does not name every source")
    else if (committed < 0) None
    else offsets.get(committed) match {
      case Some(OffsetSeq(saved, _)) if saved.map(_.map(each => ProgressNotes.offsetsOf(each.json))) == note.base.map(Option(_)) => None
      case Some(_: OffsetSeq) => Some(s"batch $committed in the checkpoint does not end where the noted batch began")
      case _ => Some("Spark has written its log of offsets in a format that is not known here")
    }
  }

  /** Where the batch began in the partitions that it read. */
  private def startOf(note: ProgressNote): Seq[Offsets] = note.positions.zip(note.base).map { case (positions, base) =>
    positions.map { case (partition, position) => partition -> base.getOrElse(partition, position) }
  }

  private def write(note: ProgressNote, committed: Long, isComplete: Boolean): Unit = {
    val metadata = note.metadata.map(OffsetSeqMetadata(_))
    if (!isComplete) {
      val ends = note.positions.map(each => Option(SerializedOffset(ProgressNotes.jsonOf(each))))
      require(offsets.add(note.batch, OffsetSeq(ends, metadata)), s"batch ${note.batch} is in the checkpoint already")
    }
    val commit = (if (committed < 0) None else commits.get(committed))
      .getOrElse(commits.createMetadata(commitLogFormatVersion = commitVersion))
    require(commits.add(note.batch, commit), s"batch ${note.batch} is in the checkpoint already")
  }

  /** The last batch in one of Spark's logs; -1 if there is none. */
  private def lastOf(log: String): Long = {
    val folder = new Path(location, log)
    if (files.exists(folder)) files.list(folder).flatMap(_.getPath.getName.toLongOption).maxOption.getOrElse(-1L) else -1L
  }
}
