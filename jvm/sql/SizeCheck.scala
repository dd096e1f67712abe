package org.apache.spark.sql.tailrace

import java.{util => ju}

import org.apache.kafka.common.header.Header
import org.apache.kafka.common.record.{AbstractRecords, CompressionType, DefaultRecord, DefaultRecordBatch, RecordBatch}

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Coalesce, Expression, Literal}
import org.apache.spark.sql.catalyst.expressions.objects.Invoke
import org.apache.spark.sql.catalyst.plans.logical.Project
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** A result is too large for Kafka. */
class ResultTooLargeException(message: String) extends RuntimeException(message)

/**
 * Fails a query at a result that is too large for the producer or the topic, while its source record is still known.
 *
 * The sizes are computed as Kafka does: the producer's estimate of the request, and a batch with this one record.
 *
 * @param topic the sink's topic; null if each row names its own
 * @param request the producer's `max.request.size`
 * @param message the topic's `max.message.bytes`; `Int.MaxValue` if unknown, or if the producer compresses
 */
case class SizeCheck(topic: String, request: Int, message: Int) {
  private val smallest = math.min(request, message)

  /** Return the value of a result that is small enough. */
  def accept(
      value: Array[Byte],
      key: Array[Byte],
      headers: ArrayData,
      rowTopic: UTF8String,
      sourceTopic: UTF8String,
      partition: Int,
      offset: Long): Array[Byte] = {
    if (SizeCheck.upperBound(value, key, headers) > smallest) {
      excess(value, key, KafkaHeaders.of(headers)).foreach { size =>
        val record = Option(sourceTopic).map(from => s"$from-$partition@$offset")
        throw new ResultTooLargeException(SizeCheck.sentence(record, if (rowTopic == null) topic else rowTopic.toString, size))
      }
    }
    value
  }

  /** Return the size of a result and the limit that it exceeds; None if it is small enough. */
  def excess(value: Array[Byte], key: Array[Byte], headers: ju.List[Header]): Option[String] =
    if (SizeCheck.upperBound(value, key, headers) <= smallest) {
      None
    } else {
      val all = headers.toArray(Array.empty[Header])
      val requested =
        AbstractRecords.estimateSizeInBytesUpperBound(RecordBatch.CURRENT_MAGIC_VALUE, CompressionType.NONE, key, value, all)
      val batch = DefaultRecordBatch.RECORD_BATCH_OVERHEAD +
        DefaultRecord.sizeInBytes(0, 0L, SizeCheck.sizeOf(key), SizeCheck.sizeOf(value), all)
      if (requested > request) Some(s"$requested bytes, more than max.request.size=$request")
      else if (batch > message) Some(s"$batch bytes, more than max.message.bytes=$message")
      else None
    }
}

object SizeCheck {

  /** The most bytes that Kafka adds to a record and to each header for lengths and batch fields. */
  private val Overhead = 128L
  private val HeaderOverhead = 10L

  /** The most bytes of a character in UTF-8. */
  private val BytesPerChar = 3L

  /**
   * Add the check to the rows of a Kafka sink and remove the hidden columns.
   *
   * The expression is nondeterministic, so the optimizer neither moves nor repeats it.
   */
  def check(frame: DataFrame, sizes: SizeCheck): DataFrame = {
    val plan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    def column(name: String, dataType: DataType): Expression =
      plan.output.find(_.name == name).getOrElse(Literal(null, dataType))
    def checked(value: Attribute): Expression = Invoke(
      Literal.create(sizes, ObjectType(classOf[SizeCheck])),
      "accept",
      BinaryType,
      Seq(
        value,
        column("key", BinaryType),
        column("headers", Lineage.HeadersType),
        column("topic", StringType),
        column(Lineage.Topic, StringType),
        // For a null in a numeric argument, Spark would return null without a call.
        Coalesce(Seq(column(Lineage.Partition, IntegerType), Literal(0))),
        Coalesce(Seq(column(Lineage.Offset, LongType), Literal(0L)))),
      propagateNull = false,
      returnNullable = true,
      isDeterministic = false)
    val visible = plan.output.filterNot(attribute => Lineage.isHidden(attribute.name)).map {
      case value if value.name == "value" => Alias(checked(value), "value")()
      case other => other
    }
    Dataset.ofRows(frame.sparkSession.asInstanceOf[SparkSession], Project(visible, plan))
  }

  /** Say which result is too large. */
  def sentence(record: Option[String], topic: String, excess: String): String =
    s"${record.map(each => s"the result of record $each").getOrElse("a result")} for topic $topic has $excess"

  private def upperBound(value: Array[Byte], key: Array[Byte], headers: ju.List[Header]): Long = {
    var total = Overhead + math.max(0, sizeOf(value)) + math.max(0, sizeOf(key))
    headers.forEach { header =>
      total += HeaderOverhead + BytesPerChar * header.key.length + math.max(0, sizeOf(header.value))
    }
    total
  }

  /** An upper bound of Kafka's size, computed without an allocation. */
  private def upperBound(value: Array[Byte], key: Array[Byte], headers: ArrayData): Long = {
    var total = Overhead + math.max(0, sizeOf(value)) + math.max(0, sizeOf(key))
    if (headers != null) {
      var index = 0
      while (index < headers.numElements()) {
        val header = headers.getStruct(index, 2)
        total += HeaderOverhead + header.getUTF8String(0).numBytes()
        if (!header.isNullAt(1)) total += header.getBinary(1).length
        index += 1
      }
    }
    total
  }

  private def sizeOf(bytes: Array[Byte]): Int = if (bytes == null) -1 else bytes.length
}
