package org.apache.spark.sql.kafka010.tailrace

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}
import java.util.concurrent.atomic.AtomicReference

import scala.collection.mutable

import org.apache.hadoop.fs.Path
import org.apache.kafka.common.TopicPartition
import org.json4s.JsonAST.{JArray, JObject}
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.SparkContext
import org.apache.spark.rpc.{RpcAddress, RpcEndpointRef}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, State, StreamExecution, StreamingQueryWrapper, TERMINATED}
import org.apache.spark.sql.kafka010.KafkaOffsetRange
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * The driver's control over one run of a query: it ends a real-time batch early, and the query between two batches.
 *
 * A batch is open from the moment when its tasks are planned until their end offsets are merged. Both happen in the thread of
 * the query, which also ends the query itself: if another thread did, Spark could cancel a batch that has just begun.
 */
final class RunControl private (execution: StreamExecution) {
  import RunControl._

  val run: String = execution.runId.toString

  private val streams = mutable.ArrayBuffer.empty[ControlledStream]
  private val streamsDone = mutable.Set.empty[ControlledStream]
  private val executors = mutable.Map.empty[RpcAddress, RpcEndpointRef]
  private val readers = new Positions
  private val partitionsOf = mutable.Map.empty[ControlledStream, Set[TopicPartition]]

  private val batches = mutable.LinkedHashMap.empty[Long, OpenBatch]
  private var open: Option[Long] = None

  /** Real-time batches up to this one end as soon as possible. */
  private var endedThrough = -1L
  private var isEndPending = false
  private var lastMerged = -1L
  @volatile private var stopping = false

  // ---- requests, from any thread

  /** End the open batch, or else the next one. */
  def endBatch(): Unit = synchronized {
    open match {
      case Some(batch) => end(batch)
      case None => isEndPending = true
    }
  }

  /** End the open real-time batch, if there is one. */
  private[tailrace] def endOpenBatch(): Unit = synchronized(open.foreach(end))

  /** End the open batch, because a reader's offsets do not exist any more, and look up the cause before the next one. */
  private[tailrace] def doubt(gone: OffsetsGone): Unit = synchronized {
    if (open.getOrElse(lastMerged) == gone.batch) { // otherwise the answer is found already
      streams.foreach(_.doubt())
      streams.lift(gone.source).foreach(_.goneOffsets.report(gone.offsets))
      open.foreach(end)
    }
  }

  /** The last batch that was ended on request; -1 while the request waits for the next batch. */
  def lastEnded: Long = synchronized(if (isEndPending) -1L else endedThrough)

  /** End the query after the open batch, or at once if none is open. A micro-batch is finished. */
  def stop(): Unit = synchronized {
    stopping = true
    open.foreach(end)
  }

  def isStopping: Boolean = stopping

  /** Allow more tasks per source in the next batch, for new partitions. Other new partitions share the running tasks. */
  def allowTasks(more: Int): Unit = synchronized(streams.foreach(_.allowTasks(more)))

  /** Where the readers are, as JSON; those on executors report twice a second. */
  def positions: String = {
    noteReaders()
    val sources = synchronized(streams.toSeq)
    readers.json(source => sources.lift(source).flatMap(_.latest))
  }

  /**
   * The offsets before which all results and dead letters of a real-time batch are acknowledged, as far as its readers have
   * reported any. They stay at the batch's start where the task of a reader does not write the results, or cannot trace them.
   * Nothing if the query has state, which is saved only at the batch's end.
   */
  private[tailrace] def safePositions(batch: Long): Map[(Int, TopicPartition), Long] =
    if (hasState) Map.empty
    else {
      noteReaders()
      synchronized(batches.get(batch).map(_.safePositions).getOrElse(Map.empty))
    }

  private def hasState: Boolean =
    Option(execution.lastExecution).exists(_.executedPlan.exists(_.isInstanceOf[StatefulOperator]))

  /** The partitions that the sources have and the open batch does not read; empty if it is about to end anyway. */
  def newPartitions: Array[String] = synchronized {
    if (open.forall(_ <= endedThrough)) Array.empty
    else {
      val added = for {
        (stream, read) <- partitionsOf.toSeq
        topicPartition <- stream.latest.toSeq.flatMap(_.known.keys) if !read.contains(topicPartition)
      } yield topicPartition.toString
      added.distinct.sorted.toArray
    }
  }

  /** Whether the query waits for its next trigger, so that an interrupt ends no batch. Call it after [[stop]]. */
  def isIdle: Boolean = execution.status.message == WaitsForTrigger

  def hasEnded: Boolean = !execution.queryExecutionThread.isAlive

  /** Whether a batch's offsets and its commit are in the checkpoint. */
  def isCommitted(batch: Long): Boolean = {
    val commits = new Path(execution.resolvedCheckpointRoot, "commits")
    files.exists(new Path(commits, batch.toString))
  }

  /** The latest batch in the checkpoint's logs of offsets and of commits; -1 if there is none. */
  def latestLogged: Array[Long] = Array("offsets", "commits").map(logged(_).maxOption.getOrElse(-1L))

  private def logged(log: String): Seq[Long] = {
    val folder = new Path(execution.resolvedCheckpointRoot, log)
    if (files.exists(folder)) files.list(folder).toSeq.flatMap(_.getPath.getName.toLongOption) else Nil
  }

  private lazy val files = CheckpointFileManager.create(
    new Path(execution.resolvedCheckpointRoot), execution.sparkSession.sessionState.newHadoopConf())

  /** The ids of the query's topics. */
  private[tailrace] lazy val topicRecord = new TopicRecord(execution.sparkSession, execution.resolvedCheckpointRoot)

  /** Notices about the topics that are not logged yet. */
  private val unlogged = new ConcurrentLinkedQueue[JObject]()

  private[tailrace] def note(notice: JObject): Unit = unlogged.add(notice)

  /** Return the new notices about the topics as JSON, each once. */
  def notices: String = compact(render(JArray(Iterator.continually(unlogged.poll()).takeWhile(_ != null).toList)))

  /** The last two batches that were planned in this run, by any source; the newest first. */
  private var plannedBatches: List[Long] = Nil

  /** The last batch in the log of offsets when the run began; -1 if none. */
  private lazy val lastAtStart = latestLogged(0)

  /** The batch whose end is the start of the next one; -1 if there is none. From the thread of the query. */
  private[tailrace] def lastBatch: Long = plannedBatches.headOption.getOrElse(lastAtStart)

  /** The batch whose end is the start of a batch that is being planned; -1 if there is none. */
  private[tailrace] def batchBefore(batch: Long): Long =
    plannedBatches.find(_ < batch).getOrElse(logged("offsets").filter(_ < batch).maxOption.getOrElse(-1L))

  /** Note and return the batch that is being planned. */
  private[tailrace] def planning(): Long = {
    val batch = currentBatch.getOrElse(0L)
    if (!plannedBatches.headOption.contains(batch)) plannedBatches = (batch :: plannedBatches).take(2)
    batch
  }

  /** What the run does so that a crash loses and repeats nothing; None for a query that was started without. */
  private[tailrace] lazy val delivery: Option[Delivery] = Delivery.of(execution.sparkSession)

  /** The id of the query, which its checkpoint keeps. */
  private[tailrace] def query: String = execution.id.toString

  private[tailrace] def sourceCount: Int = synchronized(streams.size)

  /** What Spark logs with the offsets of a batch; None if the batch is not the one that runs. */
  private[tailrace] def metadataOf(batch: Long): Option[String] =
    Option(execution.lastExecution).filter(_.currentBatchId == batch).map(_.offsetSeqMetadata.json)

  /**
   * How far the open batch has come, as its readers say now.
   *
   * @return how far each partition may have been read, None unless all readers have answered; and the offsets before which all
   *   results are acknowledged
   */
  private[tailrace] def progress(of: Long): (Option[Map[(Int, TopicPartition), Long]], Map[(Int, TopicPartition), Long]) = {
    val asked = synchronized(executors.values.toSeq)
    val reports = OpenReaders.reports.filter(_.run == run) ++ RunChannel.reports(asked, run)
    reports.foreach(note)
    val read = reports.filter(_.batch == of).flatMap(_.positions)
      .groupMapReduce(each => (each.source, each.topicPartition))(_.position)(math.max)
    val wanted = synchronized {
      partitionsOf.toSeq.flatMap { case (stream, partitions) => partitions.map(streams.indexOf(stream) -> _) }
    }
    (if (wanted.forall(read.contains)) Some(read) else None, safePositions(of))
  }

  /** How long no record was read after a batch; -1 until all tasks of the next batch read. */
  def pauseMs(batch: Long): Double = synchronized {
    val times = for {
      ended <- batches.get(batch)
      began <- batches.get(batch + 1)
      if ended.firstClosedNs > 0 && began.allOpenNs > 0
    } yield (began.allOpenNs - ended.firstClosedNs) / 1e6
    times.getOrElse(-1.0)
  }

  // ---- what happens to the batches, from the thread of the query

  /** Add a source of the query; return its number. */
  private[tailrace] def register(stream: ControlledStream): Int = synchronized {
    streams += stream
    streams.size - 1
  }

  /** End the query before its next batch, if that was requested. */
  private[tailrace] def stopBetweenBatches(): Unit = if (stopping) {
    terminate()
    throw new InterruptedException(s"query ${execution.name} was stopped on request") // Spark takes it as its own stop
  }

  /** Open the batch whose tasks are being planned; a query with several sources plans several times. */
  private[tailrace] def planned(
      stream: ControlledStream,
      source: Int,
      saved: Map[TopicPartition, Long],
      tasks: Seq[RealTimePartition]): Unit = currentBatch.foreach { batch =>
    val from = tasks.flatMap(_.ranges).map(range => range.topicPartition -> range.from).toMap
    delivery.foreach(_.planned(this, source, batch, saved, from, realTime = true))
    synchronized {
      readers.planned(source, batch, tasks)
      if (!open.contains(batch)) executors.clear() // those that read this batch report themselves
      open = Some(batch)
      partitionsOf(stream) = tasks.flatMap(_.ranges).map(_.topicPartition).toSet
      batchOf(batch).planned += tasks.length
      if (isEndPending || stopping) end(batch)
    }
  }

  /** Close the open batch: its end offsets are known, and its commit follows. */
  private[tailrace] def merged(
      stream: ControlledStream,
      source: Int,
      positions: Map[TopicPartition, Long],
      isDone: Boolean): Unit = synchronized {
    open.foreach(lastMerged = _)
    open = None
    batches.get(lastMerged).foreach(_.merged(source, positions))
    if (isDone) streamsDone += stream
    if (stopping || streamsDone.size == streams.size) terminate()
  }

  /** Note what a micro-batch reads. */
  private[tailrace] def plannedRanges(
      source: Int,
      saved: Map[TopicPartition, Long],
      ranges: Seq[KafkaOffsetRange]): Unit = currentBatch.foreach { batch =>
    val from = ranges.map(range => range.topicPartition -> range.fromOffset).toMap
    delivery.foreach(_.planned(this, source, batch, saved, from, realTime = false))
    synchronized {
      ranges.groupMapReduce(_.topicPartition)(_.size)(_ + _).foreach { case (partition, records) =>
        batchOf(batch).noteRecords(source, partition, records)
      }
    }
  }

  private def batchOf(batch: Long): OpenBatch = {
    val its = batches.getOrElseUpdate(batch, new OpenBatch)
    if (batches.size > KeptBatches) batches.remove(batches.head._1)
    its
  }

  private def terminate(): Unit = stateOf(execution).set(TERMINATED)

  private def end(batch: Long): Unit = {
    isEndPending = false
    if (batch > endedThrough) {
      endedThrough = batch
      OpenReaders.end(run, batch)
      executors.values.foreach(RunChannel.end(_, run, batch))
    }
  }

  // ---- what happens to the readers

  /** Note that a reader of a batch begins; return whether the batch has been ended, and how far it must read. */
  private[tailrace] def readerOpened(opened: ReaderOpened, executor: Option[ExecutorLink]): ReaderStart = {
    val from =
      if (opened.isRetry) delivery.map(_.retryFrom(opened)).getOrElse(Map.empty[TopicPartition, Long])
      else Map.empty[TopicPartition, Long]
    synchronized {
      executors ++= executor.map(each => each.address -> each.readers)
      readers.opened(opened)
      val readTo = batches.get(opened.batch).map(_.opened(opened)).getOrElse(Map.empty[TopicPartition, Long])
      ReaderStart(opened.batch <= endedThrough, readTo, from)
    }
  }

  /**
   * Whether a task of the last batch failed and its retry did not read as far, or nobody knows how far the failed attempt had
   * read because its executor was lost. The next start may read some of its records again.
   */
  def hasShortRetries: Boolean = synchronized {
    batches.get(lastMerged).exists(last => last.isCutShort || (last.hasUnknownRetries && lastMerged <= endedThrough))
  }

  /** Whether the last batch is in the checkpoint, and none was cancelled after it. */
  def isSaved: Boolean = synchronized {
    val logged = latestLogged
    open.isEmpty && logged(0) == logged(1) && logged(1) >= lastMerged
  }

  /** How many records the next start reads again: those of batches that are not in the checkpoint, and what a retry lacks. */
  def unsavedRecords: Long = {
    noteReaders()
    val saved = latestLogged(1)
    synchronized {
      val lacking = batches.get(lastMerged).filter(_ => open.isEmpty && lastMerged <= saved).map(_.lackedByRetries)
      batches.collect { case (batch, its) if batch > saved => its.records }.sum + lacking.getOrElse(0L)
    }
  }

  private[tailrace] def readerClosed(closed: ReaderClosed): Unit = {
    synchronized {
      batches.get(closed.batch).foreach(_.closed(closed))
      noteRead(closed.batch, closed.positions)
    }
    readers.closed(closed)
  }

  private[tailrace] def note(report: ReadersReport): Unit = {
    synchronized(noteRead(report.batch, report.positions))
    readers.note(report.batch, report.positions)
  }

  /** Note where the readers in this process are. */
  private def noteReaders(): Unit = OpenReaders.reports.filter(_.run == run).foreach(note)

  private def noteRead(batch: Long, positions: Seq[ReaderPosition]): Unit =
    batches.get(batch).foreach(its => positions.foreach(its.noteRead))
}

object RunControl {
  private val KeptBatches = 100
  private val WaitsForTrigger = "Waiting for next trigger"

  private val runs = new ConcurrentHashMap[String, RunControl]()

  /** The readers of a batch. */
  private final class OpenBatch {
    var planned = 0
    private var open = 0
    var firstClosedNs = 0L
    var allOpenNs = 0L

    /**
     * How far the attempts of each task have read at least: what a reader has reported last. A retry reads at least as far, so
     * that the next batch does not.
     */
    private val reached = mutable.Map.empty[(Int, TopicPartition), Long]
    private val read = mutable.Map.empty[(Int, TopicPartition), Long]

    /** What one attempt of a task has said stays true when another begins. */
    private val safe = mutable.Map.empty[(Int, TopicPartition), Long]

    /** The partitions whose last attempt has said where it ended. One on a lost executor may have read past its last report. */
    private val known = mutable.Set.empty[(Int, TopicPartition)]
    var hasUnknownRetries = false

    /**
     * How many records a failed attempt had read and its retry had not, as far as they were reported: Spark may end a retry with
     * the interval.
     */
    var lackedByRetries = 0L

    def isCutShort: Boolean = lackedByRetries > 0

    /** Note a reader; return how far an earlier attempt of its task has read. */
    def opened(reader: ReaderOpened): Map[TopicPartition, Long] = {
      open += 1
      if (open == planned) allOpenNs = System.nanoTime()
      val places = reader.partitions.map(reader.source -> _)
      if (reader.isRetry && !places.forall(known)) hasUnknownRetries = true
      known --= places
      places.flatMap(place => reached.get(place).map(place._2 -> _)).toMap
    }

    def noteRecords(source: Int, partition: TopicPartition, records: Long): Unit =
      read((source, partition)) = math.max(records, read.getOrElse((source, partition), 0L))

    def noteRead(at: ReaderPosition): Unit = {
      val place = (at.source, at.topicPartition)
      noteRecords(at.source, at.topicPartition, at.records)
      reached(place) = math.max(at.position, reached.getOrElse(place, 0L))
      safe(place) = math.max(at.safe, safe.getOrElse(place, 0L))
    }

    def safePositions: Map[(Int, TopicPartition), Long] = safe.toMap

    def records: Long = read.values.sum

    /** Compare the end of a source with what its tasks have read. */
    def merged(source: Int, positions: Map[TopicPartition, Long]): Unit = lackedByRetries += positions.map {
      case (each, position) => math.max(0L, reached.getOrElse((source, each), 0L) - position)
    }.sum

    def closed(reader: ReaderClosed): Unit = {
      if (firstClosedNs == 0L) firstClosedNs = System.nanoTime()
      known ++= reader.positions.map(each => each.source -> each.topicPartition)
    }
  }

  /** The control of a query's run; the first call creates it. */
  def of(query: StreamingQuery): RunControl = query match {
    case wrapper: StreamingQueryWrapper => of(wrapper.streamingQuery)
    case other => throw new IllegalArgumentException(s"not a query of this process: ${other.getClass.getName}")
  }

  private def of(execution: StreamExecution): RunControl =
    runs.computeIfAbsent(execution.runId.toString, _ => new RunControl(execution))

  private[tailrace] def find(run: String): Option[RunControl] = Option(runs.get(run))

  /** Expect no more answers from an executor. */
  private[tailrace] def executorLost(address: RpcAddress): Unit =
    runs.values.forEach(run => run.synchronized { run.executors -= address })

  /** Forget a run that has ended. */
  def close(query: StreamingQuery): Unit = Option(runs.remove(query.runId.toString)).foreach { run =>
    run.delivery.foreach(_.close(run.isSaved && !run.hasShortRetries))
  }

  /** The control of the run to which the current thread belongs; None if it is not the thread of a query. */
  private[tailrace] def current(): Option[RunControl] = for {
    context <- SparkContext.getActive
    id <- Option(context.getLocalProperty(StreamExecution.QUERY_ID_KEY))
    session <- SparkSession.getActiveSession
    execution <- Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(id)))
    if execution.queryExecutionThread eq Thread.currentThread()
  } yield {
    RunChannel.listen(context)
    of(execution)
  }

  private def currentBatch: Option[Long] =
    SparkContext.getActive.flatMap(context => Option(context.getLocalProperty(MicroBatchExecution.BATCH_ID_KEY))).map(_.toLong)

  private[tailrace] def stateOf(execution: StreamExecution): AtomicReference[State] = {
    val field = classOf[StreamExecution].getDeclaredField("state")
    field.setAccessible(true)
    field.get(execution).asInstanceOf[AtomicReference[State]]
  }
}
