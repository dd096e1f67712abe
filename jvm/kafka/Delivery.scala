package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ScheduledExecutorService}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.concurrent.Future
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.kafka.common.TopicPartition

import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.kafka010.KafkaSourceProvider
import org.apache.spark.sql.kafka010.tailrace.ProgressNote.Offsets
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.ThreadUtils

/**
 * What a run does so that the next start, after a crash, neither loses nor repeats anything.
 *
 * It notes how far the query has come, and where its results since then are. Tasks ask it which results exist already.
 *
 * @param existing what the last run wrote beyond its last note
 * @param firstEnds offsets in the output topics before which nothing is about a record that will be read; None if results may
 *   be repeated
 * @param fingerprint what decides whether, how often and where rows are written
 * @param everyMs how often to note how far the query has come; 0 to note only where its batches begin
 * @param repeated how many results of the last run will be written again, because they were made by other code
 * @param unreadable why the results of the last run cannot be read; empty if they can
 */
final class Delivery private (
    session: SparkSession,
    location: String,
    producer: ju.Map[String, Object],
    topics: OutputEnds,
    existing: OutputGuard,
    firstEnds: Option[Offsets],
    fingerprint: Option[String],
    everyMs: Long,
    val repeated: Long,
    val unreadable: String)
    extends Logging {
  import Delivery._

  val id: String = UUID.randomUUID().toString
  private val notes = new ProgressNotes(session, location)
  private val keepsEnds = firstEnds.isDefined
  private var control: Option[RunControl] = None
  private var thread: Option[ScheduledExecutorService] = None

  private var batch = -1L
  private var isRealTime = false
  private var base = Map.empty[Int, Offsets]
  private var positions = Map.empty[Int, Offsets]
  private var metadata: Option[String] = None
  private var ends = firstEnds
  private var begun = Map.empty[Long, Offsets]

  /** Ends of the output topics, the oldest first, each with what was read when they had been asked: see [[endsFor]]. */
  private var candidates = Vector.empty[Candidate]

  /** What may exist already: what the last run wrote, and failed attempts of tasks in this one. */
  private var guard = existing
  private val retries = new Retries(readAgain)

  /** The sources that are past all records about which the last run may have written. */
  private var pastGuard = Set.empty[Int]

  /** Partitions whose old results are about other records: the topic was created again. */
  private var forgotten = Set.empty[TopicPartition]
  private var written: Option[ProgressNote] = None
  private var writtenNs = 0L
  private var isClosed = false

  /** How many results of the last run it keeps from being written again at most. */
  def guarded: Long = existing.size

  /** Forget a run that did not start. */
  def abandon(): Unit = close(isSaved = false)

  // ---- from the thread of the query

  /**
   * Note where a batch begins, before its first result.
   *
   * @param saved its start offsets in the checkpoint
   * @param from where it reads really
   */
  private[tailrace] def planned(run: RunControl, source: Int, planned: Long, saved: Offsets, from: Offsets, realTime: Boolean): Unit = {
    // An attempt that failed may have read further than the batch: the next one must know what it wrote.
    if (planned != batch) retries.settle()
    synchronized {
      control = Some(run)
      val reset = from.collect { case (partition, offset) if saved.get(partition).exists(_ > offset) => partition }
      // No task runs between two batches, so every result so far is before these ends.
      val isDue = !realTime && System.nanoTime() - writtenNs > MillisNs * math.max(everyMs, LeastEveryMs)
      if (isPast(saved)) pastGuard += source
      if (reset.nonEmpty || (isDue && pastGuard.size == run.sourceCount)) renewEnds()
      forgotten ++= reset
      if (planned != batch) begin(planned, realTime)
      base += source -> saved
      positions += source -> (saved ++ from)
      if (written.isEmpty || reset.nonEmpty || isDue) write()
      if (realTime && everyMs > 0 && thread.isEmpty) watch()
    }
  }

  private def begin(next: Long, realTime: Boolean): Unit = {
    batch = next
    isRealTime = realTime
    metadata = None
    base = Map.empty
    positions = Map.empty
    ends.foreach(each => begun = begun.filter(_._1 > next - KeptBeginnings) + (next -> each))
  }

  /** Whether all records of a source about which the last run may have written are before these offsets. */
  private def isPast(offsets: Offsets): Boolean =
    offsets.forall { case (partition, offset) => offset >= guardEnd(partition) }

  private def renewEnds(): Unit = if (keepsEnds) {
    ends = Some(topics.ask())
    candidates = Vector.empty
  }

  // ---- from tasks, by RunChannel

  /** The results about a partition's records that exist. An attempt after others asks when [[retried]] is complete. */
  private[tailrace] def guardPart(source: Int, partition: TopicPartition): GuardPart = synchronized {
    if (forgotten(partition)) GuardPart.Empty else guard.part(source, partition)
  }

  /** Note an attempt of a task after others. When the result is there, it is known what those have written. */
  private[tailrace] def retried(attempt: Long, places: Set[Retries.Place]): Future[Unit] =
    if (keepsEnds) retries.began(attempt, places) else Future.unit

  /** Where an attempt after others begins: what is before is acknowledged. */
  private[tailrace] def retryFrom(reader: ReaderOpened): Offsets = {
    reader.retry.foreach(retried(_, reader.partitions.map(reader.source -> _).toSet)) // at once: its first row waits for it
    synchronized {
      val known = if (reader.batch == batch) positions.getOrElse(reader.source, Map.empty[TopicPartition, Long]) else Map.empty
      known.view.filterKeys(reader.partitions.contains).toMap
    }
  }

  /** Read the results once more, with those of attempts that have failed. */
  private def readAgain(places: Set[Retries.Place]): Unit = {
    val (from, query, before) =
      synchronized((ends.getOrElse(Map.empty[TopicPartition, Long]), control.map(_.query).getOrElse(""), forgotten))
    val read = OutputGuard.readSettled(producer, query, from, places)
    synchronized {
      guard = read
      forgotten --= before
    }
    logInfo(s"${places.size} partitions are read again after a failed task, with ${read.size} results that exist")
  }

  /** Note where the results in a topic will begin, before the first. If that fails, the next task tries it again. */
  private[tailrace] def topicUsed(topic: String): Unit = if (keepsEnds) synchronized {
    if (!written.flatMap(_.ends).exists(_.keys.exists(_.topic == topic))) {
      topics.add(topic)
      val its = topics.ask().filter(_._1.topic == topic)
      ends = ends.map(its ++ _)
      candidates = candidates.map(each => each.copy(ends = its ++ each.ends))
      begun = begun.map { case (batch, before) => batch -> (its ++ before) }
      write()
    }
  }

  // ---- once a second

  private def watch(): Unit = {
    val started = ThreadUtils.newDaemonSingleThreadScheduledExecutor("tailrace-progress")
    started.scheduleWithFixedDelay(() => look(), everyMs, everyMs, MILLISECONDS)
    thread = Some(started)
  }

  private def look(): Unit =
    try {
      control.foreach(note)
      isFailing = false
    } catch {
      case NonFatal(failed) =>
        if (!isFailing) logWarning("How far the query has come cannot be noted now; it is tried again", failed)
        isFailing = true
      case _: InterruptedException => Thread.currentThread().interrupt()
    }

  private var isFailing = false

  /** Note how far the query has come, unless it has read nothing since that was noted. */
  private def note(run: RunControl): Unit = {
    val of = synchronized(batch)
    if (settled.isEmpty || run.progress(of)._1 != settled) noteProgress(run, of)
  }

  /** What the readers had read when everything was noted; None if something is not. */
  private var settled: Option[Map[(Int, TopicPartition), Long]] = None

  /** The ends are asked before the readers: see [[endsFor]]. */
  private def noteProgress(run: RunControl, of: Long): Unit = {
    val asked = if (keepsEnds) topics.ask() else Map.empty[TopicPartition, Long]
    val (read, safe) = run.progress(of)
    val its = run.metadataOf(of)
    synchronized {
      if (of == batch && !isClosed) {
        metadata = metadata.orElse(its)
        positions = positions.map { case (source, offsets) =>
          source -> offsets.map { case (partition, offset) =>
            partition -> math.max(offset, safe.getOrElse((source, partition), offset))
          }
        }
        ends = endsFor(asked, read)
        write()
        settled = read.filter(offsets => metadata.isDefined && candidates.length <= 1 && isDone(offsets))
      }
    }
  }

  /**
   * The newest ends of the output topics before which nothing is about a record from `positions` on.
   *
   * Nobody knows how far a failed attempt of a task had read, but its results are in the guard once they have settled.
   *
   * Results of one task are acknowledged out of order: while one waits, later ones are written, so the ends that were asked just
   * before do not serve. Those serve that were asked when no record from `positions` on had been read yet.
   *
   * @param read the offset after the last record of each partition that may have been read when the ends had been asked; None if
   *   that is not known of all
   */
  private def endsFor(asked: Offsets, read: Option[Map[(Int, TopicPartition), Long]]): Option[Offsets] = {
    if (keepsEnds && retries.isSettled && candidates.length < MostCandidates) {
      read.foreach { offsets =>
        val known = ends.getOrElse(Map.empty[TopicPartition, Long]) // a task may have named a topic since the question
        val all = offsets.map { case (place @ (_, partition), offset) => place -> math.max(offset, guardEnd(partition)) }
        candidates :+= Candidate(known ++ asked, all)
      }
    }
    val last = candidates.lastIndexWhere(each => isDone(each.read))
    candidates = candidates.drop(last)
    if (last >= 0) candidates.headOption.map(_.ends) else ends
  }

  private def isDone(read: Map[(Int, TopicPartition), Long]): Boolean = read.forall { case ((source, partition), offset) =>
    positions.get(source).flatMap(_.get(partition)).exists(_ >= offset)
  }

  private def guardEnd(partition: TopicPartition): Long = if (forgotten(partition)) 0L else guard.endOf(partition)

  private def write(): Unit = control.foreach { run =>
    val sources = base.keys.toList.sorted
    val note = ProgressNote(
      run.query, batch, isRealTime, isClosed, sources.map(base), sources.map(positions), ends, begun, metadata, fingerprint)
    if (!written.contains(note)) {
      notes.write(note)
      written = Some(note)
      writtenNs = System.nanoTime()
    }
  }

  /** Write no more notes; if the checkpoint has everything, note that the next start has nothing to look for. */
  private[tailrace] def close(isSaved: Boolean): Unit = {
    val running = synchronized {
      isClosed = true
      thread
    }
    running.foreach { each =>
      each.shutdown()
      if (!each.awaitTermination(CloseTimeoutMs, MILLISECONDS)) each.shutdownNow()
    }
    try if (isSaved) synchronized(write())
    catch { case NonFatal(failed) => logWarning("The end of the run could not be noted", failed) }
    retries.close()
    topics.close()
    deliveries.remove(id)
  }
}

object Delivery extends Logging {
  /** The setting of a query's session that names its delivery. */
  val Setting = "spark.tailrace.delivery"

  private val MillisNs = 1000000L
  private val LeastEveryMs = 1000L
  private val KeptBeginnings = 3
  private val MostCandidates = 600
  private val CloseTimeoutMs = 2000L

  private case class Candidate(ends: Offsets, read: Map[(Int, TopicPartition), Long])

  private val deliveries = new ConcurrentHashMap[String, Delivery]()

  private[tailrace] def of(session: SparkSession): Option[Delivery] = session.conf.getOption(Setting).flatMap(find)

  private[tailrace] def find(id: String): Option[Delivery] = Option(deliveries.get(id))

  /**
   * Prepare the delivery of a query that is about to start, and tell its session.
   *
   * @param options the options of the sink
   * @param topics the output topics that are known
   * @param resumed what the last run has left
   * @param fingerprint what decides whether, how often and where rows are written; null if it cannot be told
   * @param isOnce whether results must not be repeated
   */
  def open(
      session: SparkSession,
      location: String,
      options: ju.Map[String, String],
      topics: ju.List[String],
      resumed: Resumed,
      fingerprint: String,
      isOnce: Boolean,
      everyMs: Long): Delivery = {
    val producer = KafkaSourceProvider.kafkaParamsForProducer(CaseInsensitiveMap(options.asScala.toMap))
    val before = if (isOnce) resumed.ends.getOrElse(Map.empty[TopicPartition, Long]) else Map.empty[TopicPartition, Long]
    val outputs = new OutputEnds(new CaseInsensitiveStringMap(options), topics.asScala.toSet ++ before.keySet.map(_.topic))
    try {
      val (existing, unreadable) =
        if (before.isEmpty || resumed.isClosed) (OutputGuard.Empty, "") else read(producer, resumed.query, before)
      val isSame = fingerprint != null && resumed.fingerprint.contains(fingerprint)
      val guard = if (isSame) existing else OutputGuard.Empty
      val now = if (isOnce) Some(outputs.ask()) else None
      val ends = if (guard.size > 0) now.map(unlessGuarded(_, before)) else now
      val repeated = existing.size - guard.size
      val delivery = new Delivery(
        session, location, producer, outputs, guard, ends, Option(fingerprint), everyMs, repeated, unreadable)
      deliveries.put(delivery.id, delivery)
      session.conf.set(Setting, delivery.id)
      delivery
    } catch {
      case failed: Throwable =>
        outputs.close()
        throw failed
    }
  }

  /** Ends before which there may be results that the guard holds stay; a partition that is new since then counts from its start. */
  private def unlessGuarded(now: Offsets, before: Offsets): Offsets = {
    val topics = before.keySet.map(_.topic)
    now.map { case (partition, end) => partition -> (if (topics(partition.topic)) before.getOrElse(partition, 0L) else end) }
  }

  /** Read the results that exist; if they cannot be read, say why. */
  private def read(producer: ju.Map[String, Object], query: Option[String], from: Offsets): (OutputGuard, String) =
    try (OutputGuard.read(producer, query.getOrElse(""), from), "")
    catch { case refused: GuardUnreadable => (OutputGuard.Empty, s"topic ${refused.topic}: ${refused.why}") }
}
