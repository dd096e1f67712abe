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
import org.apache.spark.sql.kafka010.tailrace.SharedProducer
import org.apache.spark.unsafe.types.UTF8String

/** Dead letters could not be written. The task fails, so that their records are not lost. */
class DeadLettersFailedException(message: String, cause: Throwable) extends RuntimeException(message, cause)

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

  def send(
      malformed: Malformed,
      value: Array[Byte],
      key: Array[Byte],
      headers: ArrayData,
      sourceTopic: UTF8String,
      partition: Int,
      offset: Long,
      timestampMicros: Long): Unit = {
    val all = new ju.ArrayList[Header]()
    var attempt = 1L
    if (headers != null) {
      var index = 0
      while (index < headers.numElements()) {
        val header = headers.getStruct(index, 2)
        val name = header.getUTF8String(0).toString
        val bytes = header.getBinary(1)
        all.add(new RecordHeader(name, bytes))
        if (name == HeaderNames.Attempt && bytes != null) attempt = new String(bytes, UTF_8).toLongOption.getOrElse(0L) + 1
        index += 1
      }
    }
    Seq(
      HeaderNames.Topic -> sourceTopic.toString,
      HeaderNames.Partition -> partition.toString,
      HeaderNames.Offset -> offset.toString,
      HeaderNames.EventTime -> Math.floorDiv(timestampMicros, 1000L).toString,
      HeaderNames.Reason -> malformed.reason,
      HeaderNames.Error -> malformed.error,
      HeaderNames.Pipeline -> pipeline,
      HeaderNames.Time -> System.currentTimeMillis().toString,
      HeaderNames.Attempt -> attempt.toString
    ).foreach { case (name, text) => all.add(new RecordHeader(name, text.getBytes(UTF_8))) }
    used = true
    shared.producer.send(
      new ProducerRecord[Array[Byte], Array[Byte]](topic, null, key, value, all),
      new Callback {
        override def onCompletion(metadata: RecordMetadata, error: Exception): Unit =
          if (error != null) failed.compareAndSet(null, error)
      })
  }

  /** Omits the configuration, which may contain passwords: Spark prints plans. */
  override def toString: String = s"DeadLetters($topic)"

  /** Called before each record, so that a task does not run on for minutes after a failed write. */
  def raiseIfFailed(): Unit = if (used && failed.get != null) {
    throw new DeadLettersFailedException(s"dead letters could not be written to $topic", failed.get)
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
