package org.apache.spark.sql.tailrace

import java.{util => ju}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.atomic.AtomicReference

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.producer.{Callback, ProducerRecord, RecordMetadata}
import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeader

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.kafka010.tailrace.{Flow, SharedProducer}
import org.apache.spark.unsafe.types.UTF8String

/** Dead letters could not be written. The task fails, so that their records are not lost. */
class DeadLettersFailedException(topic: String, cause: Throwable)
    extends RuntimeException(s"dead letters could not be written to $topic", cause)

/**
 * Writes bad records to the dead-letter topic from the task that reads them.
 *
 * A task succeeds, and its offsets are checkpointed, only after the broker has acknowledged every dead letter. After a crash
 * the records are read again. So a dead letter may be written twice, but is never lost.
 */
case class DeadLetters(pipeline: String, topic: String, producer: Map[String, String]) {
  @transient private lazy val failed = new AtomicReference[Throwable]
  @transient private lazy val shared: SharedProducer = acquire()
  @transient private var used = false

  /**
   * Write a dead letter, unless it exists already.
   *
   * @param source the number of the source in the pipeline
   * @param ids names the dead letters of the caller
   */
  def send(
      malformed: Malformed,
      value: Array[Byte],
      key: Array[Byte],
      headers: ArrayData,
      sourceTopic: UTF8String,
      partition: Int,
      offset: Long,
      timestampMicros: Long,
      source: Int,
      ids: OutputIds): Unit = {
    val id = ids.next(source, sourceTopic, partition, offset)
    if (ids.exists(topic)) return
    val all = KafkaHeaders.of(headers)
    val attempt = DeadLetters.attempt(all)
    DeadLetters.add(
      all,
      HeaderNames.Topic -> sourceTopic.toString,
      HeaderNames.Partition -> partition.toString,
      HeaderNames.Offset -> offset.toString,
      HeaderNames.EventTime -> Math.floorDiv(timestampMicros, 1000L).toString)
    if (id != null) all.add(new RecordHeader(HeaderNames.Id, id))
    explain(all, malformed, attempt)
    used = true
    val span = Flow.hold()
    shared.producer.send(
      new ProducerRecord[Array[Byte], Array[Byte]](topic, null, key, value, all),
      new Callback {
        override def onCompletion(metadata: RecordMetadata, error: Exception): Unit =
          if (error == null) span.release() else failed.compareAndSet(null, error)
      })
  }

  /**
   * Return the dead letter for a result that Kafka refuses. The coordinates of its record are among its headers.
   *
   * @param largest the largest dead letter, to which the value is cut
   */
  def ofResult(refused: Malformed, result: ProducerRecord[Array[Byte], Array[Byte]], largest: Int)
      : ProducerRecord[Array[Byte], Array[Byte]] = {
    val headers = new ju.ArrayList[Header](ju.List.of(result.headers.toArray: _*))
    val room = largest - DeadLetters.Room - DeadLetters.sizeOf(headers)
    val key = if (DeadLetters.sizeOf(result.key) <= room / 2) result.key else null
    val fitting = math.max(0, room - DeadLetters.sizeOf(key))
    val size = DeadLetters.sizeOf(result.value)
    val cut = if (size <= fitting) "" else s"; the value is cut from $size to $fitting bytes"
    val value = if (size <= fitting) result.value else ju.Arrays.copyOf(result.value, fitting)
    explain(headers, refused.copy(error = refused.error.take(DeadLetters.LongestError - cut.length) + cut), attempt = 1L)
    new ProducerRecord(topic, null, key, value, headers)
  }

  private def explain(headers: ju.List[Header], malformed: Malformed, attempt: Long): Unit =
    DeadLetters.add(
      headers,
      HeaderNames.Reason -> malformed.reason,
      HeaderNames.Error -> malformed.error,
      HeaderNames.Pipeline -> pipeline,
      HeaderNames.Time -> System.currentTimeMillis().toString,
      HeaderNames.Attempt -> attempt.toString)

  /** Omits the configuration, which may contain passwords: Spark prints plans. */
  override def toString: String = s"DeadLetters($topic)"

  /** Called before each record, so that a task does not run on for minutes after a failed write. */
  def raiseIfFailed(): Unit = if (used && failed.get != null) {
    throw new DeadLettersFailedException(topic, failed.get)
  }

  private def acquire(): SharedProducer = {
    val acquired = SharedProducer.acquire(producer.asInstanceOf[Map[String, Object]].asJava)
    Option(TaskContext.get()).foreach(_.addTaskCompletionListener[Unit] { context =>
      try {
        if (!context.isInterrupted() && !context.isFailed()) {
          acquired.producer.flush()
          raiseIfFailed()
        }
      } finally {
        acquired.release()
      }
    })
    acquired
  }
}

object DeadLetters {
  def of(pipeline: String, topic: String, producer: ju.Map[String, String]): DeadLetters =
    DeadLetters(pipeline, topic, producer.asScala.toMap)

  /** Bytes of a dead letter beside key, value and the headers of its record: the other headers and Kafka's own fields. */
  private val Room = 4096

  /** The most characters of the header that says why. */
  private val LongestError = 500

  private def add(headers: ju.List[Header], all: (String, String)*): Unit =
    all.foreach { case (name, text) => headers.add(new RecordHeader(name, text.getBytes(UTF_8))) }

  /** The attempt that a dead letter with these headers is: one more than its record had. */
  private def attempt(headers: ju.List[Header]): Long =
    KafkaHeaders.text(headers, HeaderNames.Attempt).map(_.toLongOption.getOrElse(0L) + 1).getOrElse(1L)

  private def sizeOf(bytes: Array[Byte]): Int = if (bytes == null) 0 else bytes.length

  private def sizeOf(headers: ju.List[Header]): Int =
    headers.asScala.map(header => 16 + 3 * header.key.length + sizeOf(header.value)).sum
}
