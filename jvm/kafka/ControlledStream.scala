package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.util.control.NonFatal

import org.apache.kafka.clients.consumer.ConsumerConfig
import org.apache.kafka.common.TopicPartition

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, PartitionOffset, ReadLimit, ReportsSourceMetrics, SupportsRealTimeMode, SupportsTriggerAvailableNow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.streaming.runtime.SerializedOffset
import org.apache.spark.sql.kafka010.{KafkaBatchInputPartition, KafkaMicroBatchStream, KafkaSourceOffset, KafkaSourcePartitionOffset}
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/**
 * The connector's stream, whose batches can end on request.
 *
 * The connector still parses options, limits batches and reads micro-batches. What differs: in real time the tasks, which read
 * with [[RealTimeReader]], and the latest offsets; in both modes the start offsets of recreated topics. The connector's own
 * reader waits for records until the batch's time is up, whatever happens.
 *
 * @param control the control of the query's run; None if the stream is only planned
 * @param options the options of the source
 * @param bounded whether a real-time query reads only what is in the topics when it starts
 * @param tasks the most tasks of a real-time query that read the stream, which share its partitions; 0 for one task per
 *   partition, as far as there are slots
 */
class ControlledStream(
    inner: ControlledStream.Kafka,
    control: Option[RunControl],
    options: CaseInsensitiveStringMap,
    bounded: Boolean,
    tasks: Int)
    extends MicroBatchStream
    with SupportsRealTimeMode
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics {
  private var isRealTime = false

  /** Where a bounded run ends: the ends of the topics at its first batch. */
  private var bound: Option[Map[TopicPartition, Long]] = None

  /** The number of tasks in the last batch, for which there were slots; 0 before the first. */
  @volatile private var lastTasks = 0

  /** Additional tasks allowed in the next batch. */
  @volatile private var moreTasks = 0

  /** Allow additional tasks in the next batch, for new partitions. */
  private[tailrace] def allowTasks(more: Int): Unit = moreTasks = more

  /** The ends that were last returned to Spark, and that its progress reports. */
  private var reported: Offset = _

  /** The number of this source in the query. */
  private val source = control.map(_.register(this)).getOrElse(0)

  /** What is known of the topics' ends in real time; None if the stream is only planned. */
  @volatile private[tailrace] var latest: Option[LatestOffsets] = None

  override def prepareForRealTimeMode(): Unit = {
    isRealTime = true
    latest = control.map(_ => new LatestOffsets(inner))
    inner.prepareForRealTimeMode()
  }

  private val failOnDataLoss = SourceControl.failsOnDataLoss(options)

  /** Whether the topics are still those of the checkpoint; None if the stream is only planned. */
  private val identity = control.map { run =>
    val (assigned, byPattern) = (options.containsKey("assign"), options.containsKey("subscribePattern"))
    new TopicIdentity(run, source, new TopicIds(options), assigned, byPattern, failOnDataLoss)
  }

  /** Whether this run, not an earlier one, planned the batch. */
  private var hasAsked = false

  /** New start offsets of partitions whose log has become shorter, or has other records there. */
  private var shortened: Map[TopicPartition, Long] = Map.empty

  /** What the readers have said of offsets that do not exist. */
  private[tailrace] val goneOffsets = new GoneOffsets

  /** Whether a run in micro-batch reads what is in the topics at its first batch, whose end the connector keeps. */
  private var isBoundedByConnector = false

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    control.foreach(_.stopBetweenBatches())
    val isFirst = !hasAsked
    hasAsked = true
    val saved = offsetsOf(start)
    var from = identity.map(_.startOf(saved)).getOrElse(saved)
    var ends = endsAfter(from, saved, limit)
    if (identity.isDefined && behind(from, ends).nonEmpty) {
      doubt()
      from = identity.map(_.startOf(saved)).getOrElse(saved)
      ends = endsAfter(from, saved, limit)
    }
    val divergent = goneOffsets.divergent(from)
    divergent.foreach { case (partition, offset) => note(RecordsLost.divergent(partition, from(partition), offset)) }
    val shorter = identity.map(_.shorterLogs(from, behind(from, ends) -- divergent.keySet)).getOrElse(Map.empty)
    shorter.foreach { case (partition, end) => note(RecordsLost.shorter(partition, from(partition), end)) }
    shortened = shorter ++ divergent
    if (shortened.nonEmpty) latest.foreach(_.continueAt(from ++ shortened))
    if (isRealTime && bounded && (bound.isEmpty || from != saved)) bound = Some(offsetsOf(ends))
    reported =
      if (isBoundedByConnector && !isFirst && from != saved) start // the run ends; the next one reads the new topic
      else if (ends != null && from != saved && ends.json == start.json) different(ends)
      else ends
    reported
  }

  private def endsAfter(from: Map[TopicPartition, Long], saved: Map[TopicPartition, Long], limit: ReadLimit): Offset = {
    val start = KafkaSourceOffset(from)
    if (from != saved) latest.foreach(_.forget())
    naming(from)(latest.map(_.next(start, limit)).getOrElse(inner.latestOffset(start, limit)))
  }

  /** Ask for offsets. If a topic does not exist any more, name it in the error. */
  private def naming[T](offsets: Map[TopicPartition, Long])(question: => T): T =
    try question
    catch { case NonFatal(failed) if TopicIds.isMissing(failed) => throw missing(offsets.keySet.map(_.topic), failed) }

  /** The connector's error does not name the topic. */
  private def missing(topics: Set[String], failed: Throwable): Throwable =
    try {
      val names = identity.map(_.missing(topics)).getOrElse(Set.empty)
      if (names.isEmpty) failed else new TopicsMissingException(names, failed)
    } catch { case NonFatal(_) => failed }

  /** The ends of the partitions whose log ends before a position. */
  private def behind(from: Map[TopicPartition, Long], ends: Offset): Map[TopicPartition, Long] =
    offsetsOf(ends).filter { case (partition, end) => from.get(partition).exists(_ > end) }

  private def note(lost: RecordsLost): Unit = {
    if (failOnDataLoss) throw new RecordsLostException(lost)
    control.foreach(_.note(lost.json(accepted = true)))
  }

  /** The same offsets in another text: Spark plans no micro-batch if they equal those of the last one. */
  private def different(ends: Offset): Offset = SerializedOffset(ends.json + " ")

  private def offsetsOf(offset: Offset): Map[TopicPartition, Long] =
    Option(offset).map(KafkaSourceOffset(_).partitionToOffsets).getOrElse(Map.empty)

  /** Find out before the next batch whether the topics are still the same. */
  private[tailrace] def doubt(): Unit = {
    identity.foreach(_.doubt())
    latest.foreach(_.forget())
  }

  /** Where a batch starts that is being planned. */
  private def startOfBatch(start: Offset, end: Option[Offset]): Offset = {
    val batch = control.map(_.planning()).getOrElse(0L)
    val ofEarlierRun = if (hasAsked) None else end.map(offsetsOf)
    val saved = offsetsOf(start)
    val from = identity.map(_.plan(saved, batch, ofEarlierRun)).getOrElse(saved)
    KafkaSourceOffset(if (isRealTime) from ++ shortened else from)
  }

  /** Plan a batch in real time. */
  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    val from = startOfBatch(start, None)
    goneOffsets.planned(offsetsOf(from))
    val partitions = inner.planInputPartitions(from).map {
      case partition: KafkaBatchInputPartition => partition
      case other => throw new IllegalStateException(s"not a partition of the Kafka connector: ${other.getClass.getName}")
    }
    identity.foreach(_.begun(partitions.map(_.offsetRange.topicPartition.topic).toSet))
    val planned = share(partitions).map(realTimePartition)
    control.foreach(_.planned(this, source, offsetsOf(start), planned.toSeq))
    planned.asInstanceOf[Array[InputPartition]]
  }

  /** Plan a micro-batch. */
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val partitions = inner.planInputPartitions(startOfBatch(start, Some(end)), end)
    identity.foreach(_.begun(offsetsOf(end).keySet.map(_.topic)))
    val ranges = partitions.toSeq.collect { case each: KafkaBatchInputPartition => each.offsetRange }
    control.foreach(_.plannedRanges(source, offsetsOf(start), ranges))
    partitions
  }

  /** Assign partitions to the tasks round-robin, in a fixed order. */
  private def share(partitions: Array[KafkaBatchInputPartition]): Array[Array[KafkaBatchInputPartition]] = {
    val sorted = partitions.sortBy { each =>
      val topicPartition = each.offsetRange.topicPartition
      (topicPartition.topic, topicPartition.partition)
    }
    val wanted = if (tasks > 0) math.min(tasks, sorted.length) else sorted.length
    val count = if (lastTasks == 0) wanted else math.min(wanted, lastTasks + moreTasks)
    moreTasks = 0 // other queries may take the slots by the time of the next batch
    lastTasks = count
    Array.tabulate(count)(task => Array.range(task, sorted.length, count).map(sorted))
  }

  private def realTimePartition(partitions: Array[KafkaBatchInputPartition]): RealTimePartition = {
    val ranges = partitions.map { partition =>
      val topicPartition = partition.offsetRange.topicPartition
      val from = partition.offsetRange.fromOffset
      // A bounded run reads nothing from a partition that was added after its start.
      RealTimeRange(topicPartition, from, bound.map(_.getOrElse(topicPartition, from)).getOrElse(Long.MaxValue))
    }
    val options = partitions.head
    RealTimePartition(
      source,
      ranges.toSeq,
      if (ranges.length > 1) ControlledStream.forSharing(options.executorKafkaParams) else options.executorKafkaParams,
      options.failOnDataLoss,
      options.includeHeaders,
      control.map(_.run).getOrElse(""))
  }

  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = {
    val positions = offsets.collect { case RealTimeOffset(positions) => positions }.flatten.toMap
    val merged = inner.mergeOffsets(positions.map { case (topicPartition, position) =>
      KafkaSourcePartitionOffset(topicPartition, position): PartitionOffset
    }.toArray)
    val isDone = bound.exists(_.forall { case (topicPartition, end) => positions.get(topicPartition).exists(_ >= end) })
    control.foreach(_.merged(this, source, positions, isDone))
    merged
  }

  override def createReaderFactory(): PartitionReaderFactory =
    new ControlledReaderFactory(inner.createReaderFactory(), control.filterNot(_ => failOnDataLoss).map(_.run))

  /** After a stop nobody needs the lag, and a broker that is away would delay the end by a minute. */
  override def metrics(consumed: ju.Optional[Offset]): ju.Map[String, String] =
    if (control.exists(_.isStopping)) ju.Collections.emptyMap()
    else {
      val read = Option(consumed.orElse(null)).map(KafkaSourceOffset(_))
      read.flatMap(to => latest.flatMap(_.recent(to.partitionToOffsets))) match {
        case ends: Some[_] => KafkaMicroBatchStream.metrics(consumed, ends)
        case None => naming(offsetsOf(read.orNull))(inner.metrics(ju.Optional.ofNullable(read.orNull)))
      }
    }

  override def latestOffset(): Offset = inner.latestOffset()
  override def reportLatestOffset(): Offset = if (latest.isDefined) reported else inner.reportLatestOffset()
  override def getDefaultReadLimit: ReadLimit = inner.getDefaultReadLimit
  override def prepareForTriggerAvailableNow(): Unit = {
    isBoundedByConnector = true
    inner.prepareForTriggerAvailableNow()
  }
  override def initialOffset(): Offset = inner.initialOffset()
  override def deserializeOffset(json: String): Offset = inner.deserializeOffset(json)
  override def commit(end: Offset): Unit = inner.commit(end)
  override def stop(): Unit = {
    identity.foreach(each => Utils.tryLogNonFatalError(each.close()))
    latest.foreach(_.close())
    LatestOffsets.close(() => inner.stop())
  }
  override def toString: String = inner.toString
}

object ControlledStream {

  /** What the connector's stream offers. */
  type Kafka = MicroBatchStream with SupportsRealTimeMode with SupportsTriggerAvailableNow with ReportsSourceMetrics

  /**
   * Kafka's consumer asks a broker for the partitions of which it holds no records, and waits for the reply before it asks
   * again. So one poll must return all that was fetched: the consumer would pass on the records of a backlog first, and would
   * ask for no more of the others. One fetch must be small, because its records are unpacked together; that is no limit, a
   * broker returns at least one batch of its producer. And the broker must not hold a request for long in which a partition
   * is missing because it had enough records, see [[FetchedRecords.hasEnough]].
   */
  private val SharingDefaults = Map[String, Object](
    ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG -> Integer.valueOf(64 << 10),
    ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG -> Integer.valueOf(FetchedRecords.LongestFetchMs),
    ConsumerConfig.MAX_POLL_RECORDS_CONFIG -> Integer.valueOf(Int.MaxValue))

  private def forSharing(configuration: ju.Map[String, Object]): ju.Map[String, Object] = {
    val all = new ju.HashMap[String, Object](configuration)
    SharingDefaults.foreach { case (key, value) => all.putIfAbsent(key, value) }
    all
  }
}

/**
 * Reads real-time partitions with Tailrace's reader and all others with the connector's.
 *
 * @param withLosses the run of a query that continues without records that are gone; None if it must not
 */
class ControlledReaderFactory(inner: PartitionReaderFactory, withLosses: Option[String]) extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = (partition, withLosses) match {
    case (realTime: RealTimePartition, _) => new RealTimeReader(realTime)
    case (microBatch: KafkaBatchInputPartition, Some(run)) =>
      new MicroBatchReader(inner.createReader(microBatch), microBatch.offsetRange, run)
    case (other, _) => inner.createReader(other)
  }
}

/**
 * What one task of a real-time batch reads.
 *
 * @param source the number of the source in the query
 * @param run the run of the query
 */
case class RealTimePartition(
    source: Int,
    ranges: Seq[RealTimeRange],
    consumer: ju.Map[String, Object],
    failOnDataLoss: Boolean,
    includeHeaders: Boolean,
    run: String) extends InputPartition

/** The records of a partition from an offset on; `until` is where to end even if the batch does not. */
case class RealTimeRange(topicPartition: TopicPartition, from: Long, until: Long)

/** Where a real-time task has ended: the offset of the next record of each partition. */
case class RealTimeOffset(positions: Map[TopicPartition, Long]) extends PartitionOffset
