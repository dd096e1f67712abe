package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.util.concurrent.atomic.AtomicReference

import scala.util.control.NonFatal

import org.apache.kafka.clients.producer.{Callback, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.{InvalidRecordException, KafkaException}
import org.apache.kafka.common.errors.{InvalidTopicException, RecordTooLargeException}
import org.apache.kafka.common.header.Header

import org.apache.spark.{SparkThrowable, TaskContext}
import org.apache.spark.sql.ForeachWriter
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.kafka010.{KafkaExceptions, KafkaWriter}
import org.apache.spark.sql.tailrace.{DeadLetters, DeadLettersFailedException, HeaderNames, KafkaHeaders, Malformed, RecordCounts, ResultTooLargeException, SizeCheck}
import org.apache.spark.util.ThreadUtils

/** Results could not be written. Spark does not wrap it again, because it is a SparkThrowable. */
class ResultsNotWrittenException(cause: Throwable)
    extends RuntimeException(s"results could not be written to Kafka: $cause", cause)
    with SparkThrowable {
  override def getCondition: String = null
}

/** The topic for results that Kafka refuses, and the size of the largest dead letter. */
case class RefusedResults(letters: DeadLetters, largest: Int)

/**
 * Writes the results of a real-time pipeline to Kafka.
 *
 * What Spark's own sink does not do: a result that Kafka refuses for its own sake becomes a dead letter, and all others of
 * its batch are sent again. A task succeeds only after the broker has acknowledged all results and dead letters.
 *
 * Each task has its own copy. The task's thread calls its methods, the producer's thread its callbacks.
 *
 * @param topic the topic; None if each row names its own
 * @param sizes the largest result that the producer and the topic accept
 * @param refused where refused results go; None if they end the query
 * @param counts counts them
 */
private[tailrace] class KafkaSink(
    topic: Option[String],
    producer: ju.Map[String, Object],
    columns: Seq[String],
    sizes: SizeCheck,
    refused: Option[RefusedResults],
    counts: RecordCounts)
    extends ForeachWriter[InternalRow] {
  import KafkaSink._

  private val keyAt = columns.indexOf(KafkaWriter.KEY_ATTRIBUTE_NAME)
  private val valueAt = columns.indexOf(KafkaWriter.VALUE_ATTRIBUTE_NAME)
  private val headersAt = columns.indexOf(KafkaWriter.HEADERS_ATTRIBUTE_NAME)
  private val topicAt = columns.indexOf(KafkaWriter.TOPIC_ATTRIBUTE_NAME)

  @transient private var shared: SharedProducer = _
  @transient private lazy val failure = new AtomicReference[Throwable]
  @transient private lazy val handover = new Handover
  @transient private var guard: Option[TaskGuard] = None

  override def open(partition: Long, batch: Long): Boolean = {
    guard = TaskGuard.of(TaskContext.get())
    shared = SharedProducer.acquire(producer)
    TaskProgress.of(TaskContext.get()).acknowledge()
    true
  }

  override def process(row: InternalRow): Unit = {
    raiseIfFailed()
    val key = binary(row, keyAt)
    val value = binary(row, valueAt)
    val headers = KafkaHeaders.of(if (headersAt < 0 || row.isNullAt(headersAt)) null else row.getArray(headersAt))
    val result = new Result(new ProducerRecord(topic.getOrElse(topicOf(row)), null, key, value, headers))
    sizes.excess(value, key, headers) match {
      case None => result.send()
      case Some(excess) =>
        val why = SizeCheck.sentence(recordOf(headers), result.record.topic, excess)
        result.refuse(TooLarge, why, new ResultTooLargeException(why))
        raiseIfFailed()
    }
  }

  /** Wait until the broker has acknowledged everything, unless the task has failed. */
  override def close(failed: Throwable): Unit = if (shared != null) {
    try {
      if (failed == null) {
        handover.settle(() => shared.producer.flush())
        raiseIfFailed()
      }
    } finally {
      shared.release()
      shared = null
    }
  }

  private def raiseIfFailed(): Unit = if (failure.get != null) throw new ResultsNotWrittenException(failure.get)

  private def fail(cause: Throwable): Unit = failure.compareAndSet(null, cause)

  /** Send from another thread: the callbacks' own, which is the producer's, must not wait for the producer. */
  private def handOver(send: => Unit): Unit = handover.run {
    try send
    catch { case NonFatal(failed) => fail(failed) }
  }

  private def topicOf(row: InternalRow): String =
    if (topicAt < 0 || row.isNullAt(topicAt)) throw KafkaExceptions.nullTopicInData() else row.getUTF8String(topicAt).toString

  private def binary(row: InternalRow, column: Int): Array[Byte] =
    if (column < 0 || row.isNullAt(column)) null else row.getBinary(column)

  /** A result on its way to the broker. It holds its record's span until it, or its dead letter, is acknowledged. */
  private final class Result(val record: ProducerRecord[Array[Byte], Array[Byte]]) extends Callback {
    private val producer = shared.producer
    private val span = Flow.hold()

    def send(): Unit = producer.send(record, this)

    override def onCompletion(metadata: RecordMetadata, error: Exception): Unit = error match {
      case null => span.release()
      case tooLarge: RecordTooLargeException => handOver(refuse(TooLarge, tooLarge.getMessage, tooLarge))
      case invalid: InvalidRecordException => handOver(refuse(InvalidRecord, invalid.getMessage, invalid))
      case invalid: InvalidTopicException if topic.isEmpty => handOver(refuse(InvalidTopic, invalid.getMessage, invalid))
      case innocent if isInnocent(innocent) => handOver(send())
      case other => fail(other)
    }

    def refuse(reason: String, why: String, error: Exception): Unit = refused match {
      case None => fail(error)
      case Some(RefusedResults(letters, largest)) =>
        counts.refuse(reason)
        if (guard.exists(_.contains(letters.topic, record.headers))) span.release()
        else send(letters.topic, letters.ofResult(Malformed(reason, why), record, largest))
    }

    private def send(topic: String, letter: ProducerRecord[Array[Byte], Array[Byte]]): Unit = producer.send(
      letter,
      (_: RecordMetadata, failed: Exception) =>
        if (failed == null) span.release() else fail(new DeadLettersFailedException(topic, failed)))
  }
}

private[tailrace] object KafkaSink {
  val TooLarge = "too_large"
  val InvalidRecord = "invalid_record"
  val InvalidTopic = "invalid_topic"

  /** The source record of a result with these headers. */
  private def recordOf(headers: ju.List[Header]): Option[String] = for {
    topic <- KafkaHeaders.text(headers, HeaderNames.Topic)
    partition <- KafkaHeaders.text(headers, HeaderNames.Partition)
    offset <- KafkaHeaders.text(headers, HeaderNames.Offset)
  } yield s"$topic-$partition@$offset"

  private lazy val sender = ThreadUtils.newDaemonSingleThreadExecutor("tailrace-refused-results")

  /** Whether the broker has refused a record only because it came in one batch with an invalid one. */
  private def isInnocent(error: Exception): Boolean =
    error.getClass == classOf[KafkaException] && error.getMessage != null && error.getMessage.contains("part of a batch")

  /** What the callbacks of a task have handed to another thread. */
  private final class Handover {
    private var begun = 0L
    private var ended = 0L

    def run(work: => Unit): Unit = {
      synchronized(begun += 1)
      sender.execute { () =>
        try work
        finally synchronized {
          ended += 1
          notifyAll()
        }
      }
    }

    /** Flush until nothing was handed over meanwhile. */
    def settle(flush: () => Unit): Unit = {
      var before = -1L
      while (before != synchronized(begun)) {
        before = synchronized(begun)
        flush()
        synchronized(while (ended < begun) wait())
      }
    }
  }
}
