package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.kafka.clients.consumer.ConsumerConfig
import org.apache.kafka.common.TopicPartition

import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, PartitionOffset, ReadLimit, ReportsSourceMetrics, SupportsRealTimeMode, SupportsTriggerAvailableNow}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.kafka010.{KafkaBatchInputPartition, KafkaMicroBatchStream, KafkaSourceOffset, KafkaSourcePartitionOffset}

/**
 * The connector's stream, whose batches can end on request.
 *
 * Offsets, options and micro-batches are the connector's, and so are the checkpoints. In real time its tasks read with
 * [[RealTimeReader]]: the connector's own reader waits for records until the batch's time is up, whatever happens.
 *
 * @param control the control of the query's run; None if the stream is only planned
 * @param bounded whether a real-time query reads only what is in the topics when it starts
 * @param tasks the most tasks of a real-time query that read the stream, which share its partitions; 0 for one task per
 *   partition, as far as there are slots
 */
class ControlledStream(inner: ControlledStream.Kafka, control: Option[RunControl], bounded: Boolean, tasks: Int)
    extends MicroBatchStream
    with SupportsRealTimeMode
    with SupportsTriggerAvailableNow
    with ReportsSourceMetrics {
  private var isRealTime = false

  /** Where a bounded run ends: the ends of the topics at its first batch. */
  private var bound: Option[Map[TopicPartition, Long]] = None

  /** The number of tasks in the first batch, for which there are slots. */
  private var tasksAtStart = 0

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

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    control.foreach(_.stopBetweenBatches())
    val ends = latest.map(_.next(start, limit)).getOrElse(inner.latestOffset(start, limit))
    if (isRealTime && bounded && bound.isEmpty) {
      bound = Some(Option(ends).map(KafkaSourceOffset(_).partitionToOffsets).getOrElse(Map.empty))
    }
    reported = ends
    ends
  }

  /** Plan a batch in real time. */
  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    val partitions = inner.planInputPartitions(start).map {
      case partition: KafkaBatchInputPartition => partition
      case other => throw new IllegalStateException(s"not a partition of the Kafka connector: ${other.getClass.getName}")
    }
    val planned = share(partitions).map(realTimePartition)
    control.foreach(_.planned(this, source, planned.toSeq))
    planned.asInstanceOf[Array[InputPartition]]
  }

  /** Plan a micro-batch. */
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = {
    val partitions = inner.planInputPartitions(start, end)
    control.foreach(_.plannedRanges(source, partitions.toSeq.collect { case each: KafkaBatchInputPartition => each.offsetRange }))
    partitions
  }

  /** Divide partitions among the tasks, in turn and in a fixed order. */
  private def share(partitions: Array[KafkaBatchInputPartition]): Array[Array[KafkaBatchInputPartition]] = {
    val sorted = partitions.sortBy { each =>
      val topicPartition = each.offsetRange.topicPartition
      (topicPartition.topic, topicPartition.partition)
    }
    val wanted = if (tasks > 0) math.min(tasks, sorted.length) else sorted.length
    if (tasksAtStart == 0) tasksAtStart = wanted
    val count = math.min(wanted, tasksAtStart + control.map(_.spareTasks).getOrElse(0))
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
    new ControlledReaderFactory(inner.createReaderFactory())

  /** After a stop nobody needs the lag, and a broker that is away would delay the end by a minute. */
  override def metrics(consumed: ju.Optional[Offset]): ju.Map[String, String] =
    if (control.exists(_.isStopping)) ju.Collections.emptyMap()
    else {
      val read = Option(consumed.orElse(null)).map(KafkaSourceOffset(_).partitionToOffsets)
      read.flatMap(to => latest.flatMap(_.recent(to))) match {
        case ends: Some[_] => KafkaMicroBatchStream.metrics(consumed, ends)
        case None => inner.metrics(consumed)
      }
    }

  override def latestOffset(): Offset = inner.latestOffset()
  override def reportLatestOffset(): Offset = if (latest.isDefined) reported else inner.reportLatestOffset()
  override def getDefaultReadLimit: ReadLimit = inner.getDefaultReadLimit
  override def prepareForTriggerAvailableNow(): Unit = inner.prepareForTriggerAvailableNow()
  override def initialOffset(): Offset = inner.initialOffset()
  override def deserializeOffset(json: String): Offset = inner.deserializeOffset(json)
  override def commit(end: Offset): Unit = inner.commit(end)
  override def stop(): Unit = latest.fold(inner.stop())(_.close(() => inner.stop()))
  override def toString: String = inner.toString
}

object ControlledStream {

  /** What the connector's stream offers. */
  type Kafka = MicroBatchStream with SupportsRealTimeMode with SupportsTriggerAvailableNow with ReportsSourceMetrics

  /**
   * Kafka's consumer asks a broker for the partitions of which it holds no records, and waits for the reply before it asks
   * again. So one poll must return all that was fetched, or a partition with a backlog would wait for records of the others.
   * And one fetch must be small, or the others would wait for the backlog.
   */
  private val SharingDefaults = Map[String, Object](
    ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG -> Integer.valueOf(64 << 10),
    ConsumerConfig.MAX_POLL_RECORDS_CONFIG -> Integer.valueOf(Int.MaxValue))

  private def forSharing(configuration: ju.Map[String, Object]): ju.Map[String, Object] = {
    val all = new ju.HashMap[String, Object](configuration)
    SharingDefaults.foreach { case (key, value) => all.putIfAbsent(key, value) }
    all
  }
}

/** Reads real-time partitions with Tailrace's reader and all others with the connector's. */
class ControlledReaderFactory(inner: PartitionReaderFactory) extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] = partition match {
    case realTime: RealTimePartition => new RealTimeReader(realTime)
    case other => inner.createReader(other)
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
