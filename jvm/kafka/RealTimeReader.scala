package org.apache.spark.sql.kafka010.tailrace

import java.{lang => jl, util => ju}
import java.time.Duration
import java.util.concurrent.locks.ReentrantLock

import org.apache.kafka.clients.consumer.{ConsumerRecord, KafkaConsumer, OffsetOutOfRangeException}
import org.apache.kafka.common.errors.WakeupException

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.streaming.{PartitionOffset, SupportsRealTimeRead}
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.kafka010.KafkaRecordToRowConverter

/**
 * Reads a partition until the batch's time is up, the end of the batch is requested, or the partition's bound is reached.
 *
 * It waits for records in Kafka's own poll, which a request ends at once, so that an idle partition costs nothing.
 */
private[tailrace] final class RealTimeReader(partition: RealTimePartition)
    extends SupportsRealTimeRead[InternalRow]
    with Logging {
  import RealTimeReader._

  val run: String = partition.run
  val batch: Long = Option(TaskContext.get().getLocalProperty(MicroBatchExecution.BATCH_ID_KEY)).map(_.toLong).getOrElse(0L)

  private val pooled = PooledConsumer.acquire(partition.consumer, partition.topicPartition)
  private val consumer: KafkaConsumer[Array[Byte], Array[Byte]] = pooled.consumer
  private val toRow = new KafkaRecordToRowConverter().toUnsafeRowProjector(partition.includeHeaders)
  private var records: ju.Iterator[Record] = ju.Collections.emptyIterator()
  private var row: UnsafeRow = _
  private var nextOffset = partition.from

  /** The consumer's position after the fetched records. */
  private var fetchedTo = partition.from
  private var isHealthy = true
  private var isPositioned = false
  private var outOfRange = 0L
  private var losses = 0L

  /** Guards `isPolling` and `isAwakened`: a consumer may be woken only while it polls for this reader. */
  private val lock = new ReentrantLock
  private var isPolling = false
  private var isAwakened = false
  @volatile private var isEnded = false

  /** Where to end at the earliest: an attempt of this task that failed had read to here. */
  private val readTo =
    try OpenReaders.open(this, ReaderOpened(run, batch, partition.topicPartition, TaskContext.get().attemptNumber() > 0))
    catch {
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
    while (!(isEnded && nextOffset >= readTo) && nextOffset < partition.until) {
      if (records.hasNext) {
        val record = records.next()
        if (record.offset >= partition.until) {
          nextOffset = partition.until
        } else {
          // After the last record come those that no consumer sees, such as the end of a transaction.
          nextOffset = if (records.hasNext) record.offset + 1 else fetchedTo
          row = toRow(record)
          return HasRecord
        }
      } else {
        if (deadline == 0L) deadline = System.nanoTime() + timeoutMs * 1000000L
        val leftMs = (deadline - System.nanoTime()) / 1000000L
        if (leftMs <= 0) return NoRecord
        poll(leftMs)
      }
    }
    NoRecord
  }

  /** Wait for records; the position may also advance without any. */
  private def poll(timeoutMs: Long): Unit = {
    isHealthy = false // until the consumer has returned normally
    try {
      seek()
      if (beginPoll()) {
        try {
          val fetched = consumer.poll(Duration.ofMillis(timeoutMs)).iterator()
          fetchedTo = positionAfterPoll()
          records = fetched
          if (!records.hasNext) nextOffset = fetchedTo
        } catch { case _: WakeupException => locked { isAwakened = false } }
        finally endPoll()
      }
    } catch {
      case lost: OffsetOutOfRangeException =>
        outOfRange += 1
        if (partition.failOnDataLoss) throw lost
        skipLost(lost)
    }
    isHealthy = true
  }

  /** The consumer's position. If it first has to ask a new leader, a wake-up may meet it; there is only one. */
  private def positionAfterPoll(): Long =
    try consumer.position(partition.topicPartition)
    catch {
      case _: WakeupException =>
        locked { isAwakened = false }
        consumer.position(partition.topicPartition)
    }

  private def seek(): Unit = if (!isPositioned) {
    if (pooled.position != nextOffset) consumer.seek(partition.topicPartition, nextOffset)
    pooled.position = PooledConsumer.Unknown
    isPositioned = true
  }

  private def beginPoll(): Boolean = locked {
    isPolling = !isEnded || nextOffset < readTo
    isPolling
  }

  /** Note that no poll runs. A wake-up that came too late for it is met here: it would end the next poll of this consumer. */
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

  /** Continue at the first record that is left, as `failOnDataLoss=false` asks for. */
  private def skipLost(lost: OffsetOutOfRangeException): Unit = {
    val first: Long = consumer.beginningOffsets(ju.List.of(partition.topicPartition)).get(partition.topicPartition)
    logWarning(s"Records of ${partition.topicPartition} from offset $nextOffset to $first are lost: ${lost.getMessage}")
    losses += 1
    nextOffset = first
    consumer.seek(partition.topicPartition, first)
  }

  override def getOffset: PartitionOffset = RealTimeOffset(partition.topicPartition, nextOffset)

  override def get(): InternalRow = row

  override def next(): Boolean = throw new UnsupportedOperationException("this reader is for real time")

  override def close(): Unit = {
    OpenReaders.close(this, ReaderClosed(run, batch, partition.topicPartition, nextOffset))
    // Fetched records that were not used are read again.
    pooled.position = if (isPositioned && !records.hasNext) nextOffset else PooledConsumer.Unknown
    if (isHealthy) pooled.release() else pooled.discard()
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
