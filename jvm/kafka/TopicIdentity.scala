package org.apache.spark.sql.kafka010.tailrace

import java.util.concurrent.{ScheduledExecutorService, TimeoutException}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.util.control.NonFatal

import org.apache.kafka.common.TopicPartition

import org.json4s.JsonAST.{JField, JObject, JString}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.kafka010.tailrace.TopicIds.Topic
import org.apache.spark.sql.kafka010.tailrace.TopicRecord.{Always, Recorded}
import org.apache.spark.util.ThreadUtils

/**
 * Whether the topics of a source are still those whose offsets are in the checkpoint.
 *
 * The offsets of a topic that was deleted and created again mean nothing in the new one. They are replaced by its first
 * offsets when a batch is planned, if the query may continue without the records that are gone. The record of the checkpoint
 * keeps the old id until then, so the answer of a broker may be late: nothing is lost, only some records are read again.
 *
 * @param run the control of the query's run
 * @param source the number of the source
 * @param assigned whether the source names its partitions
 * @param byPattern whether it reads the topics that match a pattern, whichever there are
 * @param failOnDataLoss whether the query must end if records are gone
 */
private[tailrace] final class TopicIdentity(
    run: RunControl,
    source: Int,
    ids: TopicIds,
    assigned: Boolean,
    byPattern: Boolean,
    failOnDataLoss: Boolean) extends Logging {
  import TopicIdentity._

  private lazy val atStart = run.topicRecord.contents.map(_.source(source)).getOrElse(Map.empty[String, Recorded])

  /** What is recorded of the topics, if this run has changed it. */
  @volatile private var changed: Option[Map[String, Recorded]] = None

  /** What the brokers said last. */
  @volatile private var known: Map[String, Topic] = Map.empty
  private var asked: Set[String] = Set.empty
  @volatile private var mustAsk = true
  @volatile private var watched: Set[String] = Set.empty
  private var firsts: Map[(String, String), Map[TopicPartition, Long]] = Map.empty
  private var thread: Option[ScheduledExecutorService] = None
  private var looksWithOthers = 0
  /** How many looks in a row have not found a topic. */
  private var looksWithout = Map.empty[String, Int]

  // ---- from the thread of the query

  /**
   * Return where the next batch starts, before its end is asked for.
   *
   * @param start the offsets that Spark has saved
   * @throws RecordsLostException if a topic is another one and the query must not continue without the old one's records
   */
  def startOf(start: Map[TopicPartition, Long]): Map[TopicPartition, Long] = startAfter(start, run.lastBatch)

  /**
   * Return the ends of the partitions whose log is shorter than the query's position. A query that has begun to read only
   * what is committed may be past the last of that, and nothing is lost.
   *
   * @param ends the ends that are before the position, as a consumer sees them
   */
  def shorterLogs(from: Map[TopicPartition, Long], ends: Map[TopicPartition, Long]): Map[TopicPartition, Long] =
    if (ends.isEmpty) ends
    else {
      // Just after a change of the leader one answer may be old: believe in a shorter log only if two answers agree.
      val first = shorter(from, ends.keySet)
      if (first.nonEmpty) Thread.sleep(BetweenTriesMs)
      shorter(from, first.keySet)
    }

  private def shorter(from: Map[TopicPartition, Long], partitions: Set[TopicPartition]): Map[TopicPartition, Long] =
    if (partitions.isEmpty) Map.empty else ids.endOffsets(partitions).filter { case (each, end) => end < from(each) }

  /** Return the topics that no broker knows, or that this client may not describe any more. */
  def missing(topics: Set[String]): Set[String] = topics -- ids.of(topics).keySet

  /** Ask the brokers before the next batch: an offset has shown that a topic may be another one. */
  def doubt(): Unit = mustAsk = true

  /**
   * Return the start offsets of the planned batch, and record its topics.
   *
   * @param end where a micro-batch ends that an earlier run has begun: its offsets may be those of an old topic. None for a
   *   batch of this run, for which [[startOf]] has asked the brokers.
   */
  def plan(start: Map[TopicPartition, Long], batch: Long, end: Option[Map[TopicPartition, Long]]): Map[TopicPartition, Long] = {
    val isAsked = end.isEmpty
    val from = end.foldLeft(startAfter(start, run.batchBefore(batch), mayAsk = !isAsked))(skipOld(batch, _, _))
    val topics = from.keySet.map(_.topic)
    val recreated = topics.filter(isRecreated)
    recreated.foreach(topic => run.note(RecordsLost.recreated(topic, start).json(accepted = true)))
    val since = if (isAsked) batch else batch + 1
    val again = topics.filter(topic => of(topic).exists(_.since > since)) // planned before, in a batch that was not saved
    val gone = topicsRecorded.keySet -- topics
    save(topicsRecorded -- gone ++ (recreated ++ again).map(topic => topic -> Recorded(known(topic).id, since)))
    from
  }

  /** Record the ids of topics that the planned batch is the first to read. */
  def begun(topics: Set[String]): Unit = {
    val added = topics -- topicsRecorded.keySet
    if (added.nonEmpty) {
      ask(added)
      adopt(added)
    }
  }

  private def startAfter(
      start: Map[TopicPartition, Long],
      lastBatch: Long,
      mayAsk: Boolean = true): Map[TopicPartition, Long] = {
    val topics = start.keySet.map(_.topic)
    if (mayAsk && (mustAsk || !topics.subsetOf(asked))) {
      ask(topics)
      adopt(topics)
    }
    watch(topics)
    val old = topics.filter(topic => isRecreated(topic) || of(topic).exists(_.since > lastBatch))
    old.foldLeft(start) { (offsets, topic) =>
      if (isRecreated(topic) && failOnDataLoss) throw new RecordsLostException(RecordsLost.recreated(topic, start))
      if (!known.contains(topic)) throw new TimeoutException(s"no broker says whether topic $topic is still the same")
      offsets.filterNot(_._1.topic == topic) ++ firstOffsets(topic, start.keySet)
    }
  }

  /** Record the ids of topics whose ids are not recorded yet. */
  private def adopt(topics: Set[String]): Unit = {
    val ids = (topics & known.keySet).map(topic => topic -> known(topic).id).filter { case (topic, id) =>
      !of(topic).exists(before => before.id == id || before.id != TopicIds.NoId)
    }
    if (ids.nonEmpty && topicsRecorded.isEmpty && run.lastBatch >= 0) run.note(notice("adopted"))
    if (ids.exists(_._2 == TopicIds.NoId)) run.note(notice("no-ids"))
    save(topicsRecorded ++ ids.map { case (topic, id) => topic -> Recorded(id, Always) })
  }

  private def save(topics: Map[String, Recorded]): Unit = if (topics != topicsRecorded) {
    changed = Some(topics)
    run.topicRecord.update(_.withSource(source, topics))
  }

  /** Let a batch read nothing of the topics whose offsets it has from an older one; the next batch starts at their beginning. */
  private def skipOld(
      batch: Long,
      start: Map[TopicPartition, Long],
      end: Map[TopicPartition, Long]): Map[TopicPartition, Long] = {
    val later = end.keySet.map(_.topic).filter(topic => isRecreated(topic) || of(topic).exists(_.since > batch))
    start.filterNot(each => later(each._1.topic)) ++ end.filter(each => later(each._1.topic))
  }

  private def topicsRecorded: Map[String, Recorded] = changed.getOrElse(atStart)

  private def of(topic: String): Option[Recorded] = topicsRecorded.get(topic)

  /** Whether a topic is not the one that was recorded. */
  private def isRecreated(topic: String): Boolean = isOther(topic, known)

  private def isOther(topic: String, answer: Map[String, Topic]): Boolean = {
    val ids = of(topic).map(_.id).zip(answer.get(topic).map(_.id))
    ids.exists { case (before, now) => before != TopicIds.NoId && now != TopicIds.NoId && before != now }
  }

  private def firstOffsets(topic: String, before: Set[TopicPartition]): Map[TopicPartition, Long] = {
    val now = known(topic)
    firsts.getOrElse((topic, now.id), {
      val partitions = now.partitions.map(new TopicPartition(topic, _))
      val offsets = ids.firstOffsets(if (assigned) partitions & before else partitions)
      firsts = Map((topic, now.id) -> offsets)
      offsets
    })
  }

  private def ask(topics: Set[String]): Unit =
    try {
      var answer = ids.of(topics)
      // Just after a change, brokers may disagree for a moment: believe in another topic only if two answers agree.
      var tries = 0
      while (topics.exists(isOther(_, answer)) && tries < MostTries) {
        Thread.sleep(BetweenTriesMs)
        val again = ids.of(topics)
        tries = if (again == answer) MostTries else tries + 1
        answer = again
      }
      known = known -- topics ++ answer
      asked ++= topics
      mustAsk = false
    } catch {
      // The offsets are asked next, and that question fails if no broker answers.
      case NonFatal(failed) => logWarning("The ids of the topics could not be asked", failed)
    }

  // ---- in the background

  private def watch(topics: Set[String]): Unit = synchronized {
    watched = topics
    if (thread.isEmpty) {
      val started = ThreadUtils.newDaemonSingleThreadScheduledExecutor("tailrace-topics")
      started.scheduleWithFixedDelay(() => look(), LookEveryMs, LookEveryMs, MILLISECONDS)
      thread = Some(started)
    }
  }

  /** See whether a topic is another one by now; then the running batch ends, and the next one decides what to do. */
  private def look(): Unit =
    try {
      val answer = ids.of(watched)
      val others = watched.filter(isOther(_, answer))
      looksWithOthers = if (others.isEmpty) 0 else looksWithOthers + 1
      if (others.nonEmpty) {
        mustAsk = true
        run.endOpenBatch()
      }
      // A micro-batch is not ended, and the next one may begin in an hour.
      if (looksWithOthers == LooksUntilNote) {
        others.foreach(topic => run.note(RecordsLost("recreated-idle", topic, "").json(accepted = !failOnDataLoss)))
      }
      lookForMissing(watched -- answer.keySet)
    } catch {
      case NonFatal(_) => // no broker answers; the next question may be answered
      case _: InterruptedException => Thread.currentThread().interrupt() // closed
    }

  /** Say which topics are not there any more, and end the batch that waits for their records if the query must fail. */
  private def lookForMissing(missing: Set[String]): Unit = {
    looksWithout = missing.map(topic => topic -> (looksWithout.getOrElse(topic, 0) + 1)).toMap
    missing.filter(looksWithout(_) == LooksUntilNote).foreach { topic =>
      run.note(RecordsLost("missing", topic, "").json(accepted = byPattern && !failOnDataLoss))
      if (failOnDataLoss) run.endOpenBatch() // the next one cannot be planned
    }
  }

  def close(): Unit = synchronized {
    thread.foreach(_.shutdownNow())
    ids.close()
  }
}

private[tailrace] object TopicIdentity {
  private val LookEveryMs = 2000L
  private val LooksUntilNote = 3
  private val BetweenTriesMs = 300L
  private val MostTries = 5

  private def notice(kind: String): JObject = JObject(JField("kind", JString(kind)))
}
