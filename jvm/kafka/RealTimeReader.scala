package org.apache.spark.sql.kafka010.tailrace

import java.{lang => jl, util => ju}
import java.time.Duration
import java.util.concurrent.atomic.AtomicLong
import java.util.concurrent.locks.ReentrantLock

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.consumer.{ConsumerRecords, KafkaConsumer, LogTruncationException, OffsetOutOfRangeException}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.{TimeoutException, WakeupException}

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.streaming.{PartitionOffset, SupportsRealTimeRead}
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.execution.python.tailrace.PythonWaits
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.kafka010.KafkaRecordToRowConverter

/**
 * Reads the partitions of a task until the batch's time is up, the end of the batch is requested, or all bounds are reached.
 *
 * It waits for records in Kafka's own poll, which a request ends at once, so that idle partitions cost nothing. A task with
 * several partitions also polls while it has records: a backlog on one must not delay the others.
 */
private[tailrace] final class RealTimeReader(task: RealTimePartition)
    extends SupportsRealTimeRead[InternalRow]
    with Logging {
  import RealTimeReader._

  val run: String = task.run
  val batch: Long = Option(TaskContext.get().getLocalProperty(MicroBatchExecution.BATCH_ID_KEY)).map(_.toLong).getOrElse(0L)

  private val taskNumber = TaskContext.getPartitionId()
  private val taskAttempt = TaskContext.get().taskAttemptId()
  private val partitions: Array[TopicPartition] = task.ranges.map(_.topicPartition).toArray
  private val until: Array[Long] = task.ranges.map(_.until).toArray

  /** The offset of the next record of each partition; a row has been passed on before it advances. */
  private val nextOffsets: Array[Long] = task.ranges.map(_.from).toArray
  private val progress = new ReaderProgress(TaskProgress.of(TaskContext.get()), nextOffsets)

  /** The consumer's position in each partition, after the fetched records. */
  private val fetchedTo: Array[Long] = nextOffsets.clone()
  private val pooled = PooledConsumer.acquire(task.consumer, partitions.toSet)
  private val consumer: KafkaConsumer[Array[Byte], Array[Byte]] = pooled.consumer
  private val toRow = new KafkaRecordToRowConverter().toUnsafeRowProjector(task.includeHeaders)

  private val fetched = new FetchedRecords(partitions.length)
  private var row: UnsafeRow = _
  private var isHealthy = true
  private var isPositioned = false
  private val isBounded = until.exists(_ < Long.MaxValue)
  private val isShared = partitions.length > 1

  /** When a task with several partitions polled last, and how many records it has passed on since. */
  private var polledNs = 0L
  private var sincePoll = 0

  /** How long the query takes for a record, on average; 0 until that is known. */
  private var recordNs = 0L

  /** The offsets that do not exist any more. Their partitions are not read before the driver has planned the next batch. */
  @volatile private var gone: Map[TopicPartition, GoneOffset] = Map.empty
  private val counts: Array[Long] = new Array(partitions.length)
  private val bytes: Array[Long] = new Array(partitions.length)
  private val lastMs: Array[Long] = new Array(partitions.length)

  /** What it waits for and since when, in one number: other threads read it, and a record must not cost a lock. */
  private val waiting = new AtomicLong(Waiting.NotAsked)
  private var outOfRange = 0L
  private var losses = 0L

  /** Guards `isPolling` and `isAwakened`: a consumer may be woken only while it polls for this reader. */
  private val lock = new ReentrantLock
  @volatile private var isPolling = false
  private var isAwakened = false
  @volatile private var isEnded = false

  /** Whether the driver knows this reader. Before that, its positions would hide how far a failed attempt has read. */
  @volatile private[tailrace] var hasBegun = false

  /** The offsets that a failed attempt of this task had reached: this attempt reads at least to them. */
  private val readTo: Array[Long] =
    try {
      val opened = ReaderOpened(run, batch, task.source, partitions.toSeq, Retries.of(TaskContext.get()))
      val start = OpenReaders.open(this, opened)
      beginAt(start.from)
      hasBegun = true
      partitions.map(start.readTo.getOrElse(_, 0L))
    } catch {
      case failed: Throwable =>
        pooled.discard()
        throw failed
    }

  /** Skip what an earlier attempt of this task has done. */
  private def beginAt(from: Map[TopicPartition, Long]): Unit = partitions.indices.foreach { partition =>
    val begin = math.max(nextOffsets(partition), from.getOrElse(partitions(partition), 0L))
    nextOffsets(partition) = begin
    fetchedTo(partition) = begin
  }

  /** End the batch of this reader, from any thread. */
  def end(): Unit = locked {
    isEnded = true
    if (isPolling && !isAwakened) {
      isAwakened = true
      consumer.wakeup()
    }
  }

  override def nextWithTimeout(startMs: jl.Long, timeoutMs: jl.Long): RecordStatus = {
    var now = System.nanoTime()
    progress.asked(now, nextOffsets)
    var deadline = 0L // a record that has been fetched needs none
    if (isShared && !fetched.isEmpty && now - polledNs >= TurnNs && !isDone) now = poll(now, 0L)
    while (!isDone) {
      if (!fetched.isEmpty) {
        if (pass(fetched.next())) {
          waiting.lazySet(Waiting.since(now, isForRecords = false))
          return HasRecord
        }
      } else {
        if (deadline == 0L) {
          waiting.lazySet(Waiting.since(now, isForRecords = true))
          deadline = now + timeoutMs * 1000000L
        }
        val leftMs = (deadline - now) / 1000000L
        if (leftMs <= 0) return noRecord(now)
        now = poll(now, leftMs)
      }
    }
    noRecord(now)
  }

  private def noRecord(nowNs: Long): RecordStatus = {
    progress.cut(nowNs, nextOffsets)
    NoRecord
  }

  /** Make a record the current one, unless it belongs to a later batch, as do those after it. */
  private def pass(record: Record): Boolean = {
    val at = fetched.at
    val end = limit(at)
    if (record.offset < end) {
      // After the last record come those that no consumer sees, such as the end of a transaction.
      nextOffsets(at) = if (fetched.isEmpty(at)) fetchedTo(at) else record.offset + 1
      counts(at) += 1
      bytes(at) += FetchedRecords.sizeOf(record)
      lastMs(at) = record.timestamp
      sincePoll += 1
      row = toRow(record)
      true
    } else {
      fetched.drop(at)
      nextOffsets(at) = math.max(nextOffsets(at), end)
      false
    }
  }

  /** What it has read so far. Other threads ask; a count may be a moment old. */
  def positions: Seq[ReaderPosition] = {
    val waits = Waiting.of(waiting.get(), System.nanoTime(), PythonWaits.waitedNs(taskAttempt))
    val safe = progress.safe
    partitions.indices.map { each =>
      ReaderPosition(
        task.source,
        partitions(each),
        taskNumber,
        nextOffsets(each),
        safe(each),
        counts(each),
        bytes(each),
        lastMs(each),
        waits)
    }
  }

  private def isDone: Boolean =
    if (isEnded) partitions.indices.forall(partition => nextOffsets(partition) >= readTo(partition))
    else isBounded && partitions.indices.forall(partition => nextOffsets(partition) >= until(partition))

  /** The offset from which the records of a partition belong to a later batch, or to none. */
  private def limit(partition: Int): Long =
    if (isEnded) math.min(until(partition), readTo(partition)) else until(partition)

  /** Wait for records, which may be none: positions also advance without any. Return the time when that has ended. */
  private def poll(nowNs: Long, timeoutMs: Long): Long = {
    progress.cut(nowNs, nextOffsets)
    if (sincePoll > 0) recordNs = averageNs((nowNs - polledNs) / sincePoll)
    isHealthy = false // until the consumer has returned normally
    try {
      seek()
      pauseSome()
      if (beginPoll()) {
        try take(consumer.poll(Duration.ofMillis(timeoutMs)))
        catch { case _: WakeupException => locked { isAwakened = false } }
        finally endPoll()
      }
    } catch {
      case refused: OffsetOutOfRangeException =>
        outOfRange += 1
        refused.partitions().forEach(partition => skipLost(partition, refused))
    }
    isHealthy = true
    sincePoll = 0
    polledNs = System.nanoTime()
    polledNs
  }

  private def averageNs(lastNs: Long): Long = if (recordNs == 0L) lastNs else (3 * recordNs + lastNs) / 4

  private def take(polled: ConsumerRecords[Array[Byte], Array[Byte]]): Unit = {
    val lists = partitions.map(each => polled.records(each))
    partitions.indices.foreach { partition =>
      val its = lists(partition)
      fetched.add(partition, its)
      if (!its.isEmpty) fetchedTo(partition) = its.get(its.size - 1).offset + 1
    }
    fetched.order()
    partitions.indices.foreach { partition =>
      fetchedTo(partition) = positionAfterPoll(partition, fetchedTo(partition))
      advance(partition)
    }
  }

  /** Let the position of a partition advance without a record, if all of its records have been passed on. */
  private def advance(partition: Int): Unit =
    // Records past the limit were dropped: they belong to a later batch.
    if (fetched.isEmpty(partition) && nextOffsets(partition) < limit(partition)) nextOffsets(partition) = fetchedTo(partition)

  /** The consumer's position, if it knows it: after a change of the leader it would first wait for the new one. */
  private def positionAfterPoll(partition: Int, otherwise: Long): Long =
    try consumer.position(partitions(partition), Duration.ZERO)
    catch {
      case _: TimeoutException | _: OffsetOutOfRangeException => otherwise // the next poll finds the same
      case _: WakeupException =>
        locked { isAwakened = false }
        otherwise
    }

  private def seek(): Unit = if (!isPositioned) {
    partitions.indices.foreach { partition =>
      if (!pooled.positions.get(partitions(partition)).contains(fetchedTo(partition))) {
        consumer.seek(partitions(partition), fetchedTo(partition))
      }
    }
    pooled.positions = Map.empty
    isPositioned = true
  }

  /**
   * Fetch nothing from partitions that have reached their bound, or have so many records that the others would wait.
   *
   * A paused partition keeps what the consumer has fetched.
   */
  private def pauseSome(): Unit = if (isShared) {
    val some = partitions.indices.filter { each =>
      gone.contains(partitions(each)) || nextOffsets(each) >= until(each) || fetched.hasEnough(each, recordNs)
    }
    val wanted = some.map(partitions).toSet.asJava
    val paused = consumer.paused()
    if (paused != wanted) {
      consumer.resume(paused)
      consumer.pause(wanted)
    }
  }

  private def beginPoll(): Boolean = locked {
    isPolling = !isEnded || !isDone
    isPolling
  }

  /** Record the end of a poll, and absorb a late wake-up: it would end the next poll of this consumer. */
  private def endPoll(): Unit = {
    val isLate = locked {
      isPolling = false
      val late = isAwakened
      isAwakened = false
      late
    }
    if (isLate) {
      try {
        consumer.poll(Duration.ZERO)
        isPositioned = false // it should have thrown; if it has fetched records instead, they are fetched again
      } catch { case _: WakeupException => }
    }
  }

  /**
   * Continue at the first record that is left, as `failOnDataLoss=false` asks for.
   *
   * If the log ends before the position, or had other records there, the topic may be another one by now, which the driver
   * finds out. The partition is not read until it has planned the next batch.
   */
  private def skipLost(topicPartition: TopicPartition, refused: OffsetOutOfRangeException): Unit = {
    val partition = partitions.indexOf(topicPartition)
    val position = fetchedTo(partition)
    losses += 1
    refused match {
      case truncated: LogTruncationException =>
        leaveToDriver(topicPartition, position, truncated.divergentOffsets().asScala.get(topicPartition).map(_.offset))
      case _ =>
        val first = consumer.beginningOffsets(ju.List.of(topicPartition)).get(topicPartition).longValue
        if (first > position) continueAt(partition, first) else leaveToDriver(topicPartition, position, None)
    }
  }

  private def continueAt(partition: Int, first: Long): Unit = {
    val lost = RecordsLost.deleted(partitions(partition), fetchedTo(partition), first)
    if (task.failOnDataLoss) throw new RecordsLostException(lost)
    logWarning(lost.message)
    RunChannel.recordsLost(LossReport(run, lost))
    consumer.seek(partitions(partition), first)
    fetchedTo(partition) = first
    advance(partition)
  }

  private def leaveToDriver(topicPartition: TopicPartition, position: Long, divergent: Option[Long]): Unit = {
    gone += topicPartition -> GoneOffset(topicPartition, position, divergent)
    consumer.pause(ju.List.of(topicPartition))
    consumer.seek(topicPartition, position) // the consumer would compare the leader's epochs again with every poll
    offsetsGone.foreach(RunChannel.offsetsGone)
  }

  /** The offsets that do not exist any more. Other threads ask, too. */
  def offsetsGone: Option[OffsetsGone] =
    if (gone.isEmpty) None else Some(OffsetsGone(run, batch, task.source, gone.values.toSeq))

  override def getOffset: PartitionOffset = RealTimeOffset(partitions.zip(nextOffsets).toMap)

  override def get(): InternalRow = row

  override def next(): Boolean = throw new UnsupportedOperationException("this reader is for real time")

  override def close(): Unit = {
    OpenReaders.close(this, ReaderClosed(run, batch, positions))
    if (isHealthy) {
      // The next batch seeks only where it does not begin there: fetched records that were not used are fetched again.
      // A partition that was left to the driver needs a seek even to the same offset: it ends the comparison of epochs.
      pooled.positions = if (isPositioned) partitions.zip(fetchedTo).toMap -- gone.keySet else Map.empty
      consumer.resume(consumer.paused())
      pooled.release()
    } else {
      pooled.discard()
    }
  }

  override def currentMetricsValues(): Array[CustomTaskMetric] =
    Array(Metric("offsetOutOfRange", outOfRange), Metric("dataLoss", losses))

  private def locked[T](work: => T): T = {
    lock.lock()
    try work
    finally lock.unlock()
  }
}

private[tailrace] object RealTimeReader {
  private type Record = FetchedRecords.Record

  /** A task with several partitions polls this often while it has records. */
  private val TurnNs = 5000000L
  private val HasRecord = RecordStatus.newStatusWithoutArrivalTime(true)
  private val NoRecord = RecordStatus.newStatusWithoutArrivalTime(false)

  private case class Metric(name: String, value: Long) extends CustomTaskMetric
}
