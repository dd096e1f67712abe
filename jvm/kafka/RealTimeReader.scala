package org.apache.spark.sql.kafka010.tailrace

import java.{lang => jl, util => ju}
import java.time.Duration
import java.util.concurrent.locks.ReentrantLock

import org.apache.kafka.clients.consumer.{ConsumerRecord, ConsumerRecords, KafkaConsumer, OffsetOutOfRangeException}
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
 * It waits for records in Kafka's own poll, which a request ends at once, so that idle partitions cost nothing. Of the
 * partitions in one poll, those with few records come first: a backlog on one must not delay the others.
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

  /** The consumer's position in each partition, after the fetched records. */
  private val fetchedTo: Array[Long] = nextOffsets.clone()
  private val pooled = PooledConsumer.acquire(task.consumer, partitions.toSet)
  private val consumer: KafkaConsumer[Array[Byte], Array[Byte]] = pooled.consumer
  private val toRow = new KafkaRecordToRowConverter().toUnsafeRowProjector(task.includeHeaders)

  /** The fetched records by partition, and the partition of those that are being read. */
  private var fetched: Iterator[(Int, ju.Iterator[Record])] = Iterator.empty
  private var records: ju.Iterator[Record] = ju.Collections.emptyIterator()
  private var at = 0
  private var row: UnsafeRow = _
  private var isHealthy = true
  private var isPositioned = false
  private val isBounded = until.exists(_ < Long.MaxValue)
  private val paused = new ju.ArrayList[TopicPartition]
  private val counts: Array[Long] = new Array(partitions.length)
  private val bytes: Array[Long] = new Array(partitions.length)
  private val lastMs: Array[Long] = new Array(partitions.length)

  /** What it waits for and since when, in one number: other threads read it, and a record must not cost a lock. */
  private var waiting = Waiting.NotAsked
  private var outOfRange = 0L
  private var losses = 0L

  /** Guards `isPolling` and `isAwakened`: a consumer may be woken only while it polls for this reader. */
  private val lock = new ReentrantLock
  @volatile private var isPolling = false
  private var isAwakened = false
  @volatile private var isEnded = false

  /** The offsets that a failed attempt of this task had reached: this attempt reads at least to them. */
  private val readTo: Array[Long] =
    try {
      val context = TaskContext.get()
      val isRetry = context.attemptNumber() > 0 || context.stageAttemptNumber() > 0
      val opened = ReaderOpened(run, batch, task.source, partitions.toSeq, isRetry)
      val reached = OpenReaders.open(this, opened)
      partitions.map(reached.getOrElse(_, 0L))
    } catch {
      case failed: Throwable =>
        pooled.discard()
        throw failed
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
    var deadline = 0L // a record that has been fetched needs none
    while (!isDone) {
      if (records.hasNext) {
        val record = records.next()
        val end = limit(at)
        if (record.offset < end) {
          // After the last record come those that no consumer sees, such as the end of a transaction.
          nextOffsets(at) = if (records.hasNext) record.offset + 1 else fetchedTo(at)
          count(record)
          row = toRow(record)
          waiting = Waiting.since(System.nanoTime(), isForRecords = false)
          return HasRecord
        }
        records = ju.Collections.emptyIterator()
        nextOffsets(at) = math.max(nextOffsets(at), end)
      } else if (fetched.hasNext) {
        val (partition, its) = fetched.next()
        at = partition
        records = its
      } else {
        if (deadline == 0L) {
          val now = System.nanoTime()
          waiting = Waiting.since(now, isForRecords = true)
          deadline = now + timeoutMs * 1000000L
        }
        val leftMs = (deadline - System.nanoTime()) / 1000000L
        if (leftMs <= 0) return NoRecord
        poll(leftMs)
      }
    }
    NoRecord
  }

  private def count(record: Record): Unit = {
    counts(at) += 1
    bytes(at) += math.max(0, record.serializedKeySize) + math.max(0, record.serializedValueSize)
    lastMs(at) = record.timestamp
  }

  /** What it has read so far. Other threads ask; a count may be a moment old. */
  def positions: Seq[ReaderPosition] = {
    val waits = Waiting.of(waiting, System.nanoTime(), PythonWaits.waitedNs(taskAttempt))
    partitions.indices.map { each =>
      ReaderPosition(
        task.source, partitions(each), taskNumber, nextOffsets(each), counts(each), bytes(each), lastMs(each), waits)
    }
  }

  private def isDone: Boolean =
    if (isEnded) partitions.indices.forall(partition => nextOffsets(partition) >= readTo(partition))
    else isBounded && partitions.indices.forall(partition => nextOffsets(partition) >= until(partition))

  /** The offset from which the records of a partition belong to a later batch, or to none. */
  private def limit(partition: Int): Long =
    if (isEnded) math.min(until(partition), readTo(partition)) else until(partition)

  /** Wait for records; positions may also advance without any. */
  private def poll(timeoutMs: Long): Unit = {
    isHealthy = false // until the consumer has returned normally
    try {
      seek()
      pauseDone()
      if (beginPoll()) {
        try take(consumer.poll(Duration.ofMillis(timeoutMs)))
        catch { case _: WakeupException => locked { isAwakened = false } }
        finally endPoll()
      }
    } catch {
      case lost: OffsetOutOfRangeException =>
        outOfRange += 1
        lost.partitions().forEach(partition => skipLost(partition))
    }
    isHealthy = true
  }

  private def take(polled: ConsumerRecords[Array[Byte], Array[Byte]]): Unit = {
    val lists = partitions.indices.map(each => each -> polled.records(partitions(each)))
    lists.foreach { case (partition, its) =>
      val last = if (its.isEmpty) fetchedTo(partition) else its.get(its.size - 1).offset + 1
      fetchedTo(partition) = positionAfterPoll(partition, last)
      // Records past the limit were dropped: they belong to a later batch.
      if (its.isEmpty && nextOffsets(partition) < limit(partition)) nextOffsets(partition) = fetchedTo(partition)
    }
    fetched = lists.filterNot(_._2.isEmpty).sortBy(_._2.size).iterator.map { case (each, its) => each -> its.iterator() }
  }

  /** The consumer's position, if it knows it: after a change of the leader it would first wait for the new one. */
  private def positionAfterPoll(partition: Int, otherwise: Long): Long =
    try consumer.position(partitions(partition), Duration.ZERO)
    catch {
      case _: TimeoutException => otherwise
      case _: WakeupException =>
        locked { isAwakened = false }
        otherwise
    }

  private def seek(): Unit = if (!isPositioned) {
    partitions.indices.foreach { partition =>
      if (!pooled.positions.get(partitions(partition)).contains(nextOffsets(partition))) {
        consumer.seek(partitions(partition), nextOffsets(partition))
      }
    }
    pooled.positions = Map.empty
    isPositioned = true
  }

  /** Fetch nothing more from the partitions of a bounded run that have reached their bound. */
  private def pauseDone(): Unit = if (isBounded && partitions.length > 1) {
    partitions.indices.foreach { partition =>
      if (nextOffsets(partition) >= until(partition) && !paused.contains(partitions(partition))) paused.add(partitions(partition))
    }
    consumer.pause(paused)
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
   * If the log ends before the position, the topic may be another one by now, which the driver finds out. The partition is
   * not read until it has planned the next batch.
   */
  private def skipLost(topicPartition: TopicPartition): Unit = {
    val partition = partitions.indexOf(topicPartition)
    val position = nextOffsets(partition)
    val first = consumer.beginningOffsets(ju.List.of(topicPartition)).get(topicPartition).longValue
    losses += 1
    if (first > position) {
      val lost = RecordsLost.deleted(topicPartition, position, first)
      if (task.failOnDataLoss) throw new RecordsLostException(lost)
      logWarning(lost.message)
      RunChannel.recordsLost(LossReport(run, lost))
      nextOffsets(partition) = first
      consumer.seek(topicPartition, first)
    } else {
      paused.add(topicPartition)
      consumer.pause(ju.List.of(topicPartition))
      RunChannel.offsetGone(OffsetGone(run, batch))
    }
  }

  override def getOffset: PartitionOffset = RealTimeOffset(partitions.zip(nextOffsets).toMap)

  override def get(): InternalRow = row

  override def next(): Boolean = throw new UnsupportedOperationException("this reader is for real time")

  override def close(): Unit = {
    OpenReaders.close(this, ReaderClosed(run, batch, positions))
    if (isHealthy) {
      // The next batch seeks only where it does not begin there: fetched records that were not used are fetched again.
      pooled.positions = if (isPositioned) partitions.zip(fetchedTo).toMap else Map.empty
      consumer.resume(paused)
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
  private type Record = ConsumerRecord[Array[Byte], Array[Byte]]
  private val HasRecord = RecordStatus.newStatusWithoutArrivalTime(true)
  private val NoRecord = RecordStatus.newStatusWithoutArrivalTime(false)

  private case class Metric(name: String, value: Long) extends CustomTaskMetric
}
