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
 * @param isFresh whether no run has ever begun a batch
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
    val found = new ProgressNotes(spark, location).last.filter(_.forall(its => query.contains(its.query)))
    val note = found.flatMap(_.toOption)
    // Where the first source begins is saved before its first batch, also by versions that kept no notes.
    val isFresh = Seq("commits", "offsets", "sources/0").forall(lastOf(_) < 0) && found.isEmpty
    val unread = found.flatMap(_.left.toOption).getOrElse("")
    val resumed = Resumed(query, None, isClosed = false, note.flatMap(_.fingerprint), 0L, unread, isFresh)
    note match {
      case None => resumed
      case Some(its) if its.batch <= committed =>
        val isLast = its.batch == committed && lastOf("offsets") == committed
        resumed.copy(ends = endsFor(its, startAfter(committed)), isClosed = its.isClosed && isLast)
      case Some(its) if its.batch == committed + 1 => advance(its, committed, resumed)
      case Some(its) =>
        val why = s"the checkpoint ends with batch $committed, and the note of the last run is about batch ${its.batch}"
        resumed.copy(ends = its.begun.get(committed + 1), unused = why)
    }
  }

  private def advance(note: ProgressNote, committed: Long, resumed: Resumed): Resumed = {
    val start = if (committed < 0) Some(note.base) else startAfter(committed)
    val isComplete = isLogged(note)
    obstacle(note, committed, start) match {
      case _ if !note.isRealTime || (start.contains(note.positions) && !isComplete) =>
        resumed.copy(ends = endsFor(note, start)) // nothing was done, or Spark repeats the batch, whose end is in its log
      case Some(why) => resumed.copy(ends = endsFor(note, start), unused = why)
      case None =>
        write(note, committed, isComplete)
        resumed.copy(ends = note.ends, advanced = ProgressNote.records(note.base, note.positions))
    }
  }

  /** Why the checkpoint cannot be moved forward; None if it can. */
  private def obstacle(note: ProgressNote, committed: Long, start: Option[Seq[Offsets]]): Option[String] = {
    val logged = lastOf("offsets")
    if (logged > note.batch) Some(s"its log of offsets is at batch $logged already, and the note is about batch ${note.batch}")
    else if (logged == note.batch && !isLogged(note)) Some(s"another run has begun batch $logged since")
    else if (note.metadata.isEmpty) Some("the last run ended before its first batch had begun")
    else if (note.base.isEmpty || note.positions.length != note.base.length) Some("the note does not name every source")
    else start match {
      case None => Some("Spark has written its log of offsets in a format that is not known here")
      case Some(_) if !isAtLeast(note.positions, note.base) => Some("a topic was created again in the noted batch")
      case Some(offsets) if offsets == note.base => None
      case _ => Some(s"batch $committed in the checkpoint does not end where the noted batch began")
    }
  }

  /**
   * Whether the end of the noted batch is in Spark's log, and lacks the commit, no more. Spark logs the end of a real-time batch
   * when all of it is written, but that of a micro-batch, which another run may have begun since, before its first record.
   */
  private def isLogged(note: ProgressNote): Boolean = note.isRealTime && lastOf("offsets") == note.batch &&
    offsets.get(note.batch).flatMap(_.metadataOpt).zip(note.metadata.map(OffsetSeqMetadata(_))).exists {
      case (logged, noted) => logged.batchTimestampMs == noted.batchTimestampMs
    }

  /** Where the batch after a committed one begins, for each source; None if that is not known. */
  private def startAfter(committed: Long): Option[Seq[Offsets]] = offsets.get(committed).collect {
    case OffsetSeq(saved, _) if saved.forall(_.isDefined) => saved.flatten.map(each => ProgressNotes.offsetsOf(each.json))
  }

  /** Offsets in the output topics before which nothing is about a record from a start on; None if the note does not know any. */
  private def endsFor(note: ProgressNote, start: Option[Seq[Offsets]]): Option[Offsets] =
    if (start.exists(isAtLeast(_, note.positions)) && isAtLeast(note.positions, note.base)) note.ends
    else if (start.exists(isAtLeast(_, note.base))) note.begun.get(note.batch)
    else None

  private def isAtLeast(start: Seq[Offsets], other: Seq[Offsets]): Boolean = start.length >= other.length &&
    start.zip(other).forall { case (its, least) => least.forall { case (partition, offset) => its.get(partition).exists(_ >= offset) } }

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
