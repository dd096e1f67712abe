package org.apache.spark.sql.tailrace

import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeader
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

  def accept(
      value: Array[Byte],
      key: Array[Byte],
      headers: ArrayData,
      rowTopic: UTF8String,
      sourceTopic: UTF8String,
      partition: Int,
      offset: Long): Array[Byte] = {
    if (SizeCheck.upperBound(value, key, headers) > smallest) {
      val kafkaHeaders = SizeCheck.kafkaHeaders(headers)
      val requested =
        AbstractRecords.estimateSizeInBytesUpperBound(RecordBatch.CURRENT_MAGIC_VALUE, CompressionType.NONE, key, value, kafkaHeaders)
      val batch = DefaultRecordBatch.RECORD_BATCH_OVERHEAD +
        DefaultRecord.sizeInBytes(0, 0L, SizeCheck.sizeOf(key), SizeCheck.sizeOf(value), kafkaHeaders)
      val over =
        if (requested > request) Some(s"$requested bytes, more than max.request.size=$request")
        else if (batch > message) Some(s"$batch bytes, more than max.message.bytes=$message")
        else None
      over.foreach { size =>
        val result = if (sourceTopic == null) "a result" else s"the result of record $sourceTopic-$partition@$offset"
        throw new ResultTooLargeException(s"$result for topic ${if (rowTopic == null) topic else rowTopic} has $size")
      }
    }
    value
  }
}

object SizeCheck {

  /** The most bytes that Kafka adds to a record and to each header for lengths and batch fields. */
  private val Overhead = 128L
  private val HeaderOverhead = 10L

  /**
   * Add the check to the rows of a Kafka sink and remove the hidden columns.
   *
   * The expression is nondeterministic, so the optimizer neither moves nor repeats it.
   */
  def check(frame: DataFrame, topic: String, request: Int, message: Int): DataFrame = {
    val plan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    def column(name: String, dataType: DataType): Expression =
      plan.output.find(_.name == name).getOrElse(Literal(null, dataType))
    def checked(value: Attribute): Expression = Invoke(
      Literal.create(SizeCheck(topic, request, message), ObjectType(classOf[SizeCheck])),
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

  private def kafkaHeaders(headers: ArrayData): Array[Header] =
    if (headers == null) {
      Array.empty
    } else {
      Array.tabulate(headers.numElements()) { index =>
        val header = headers.getStruct(index, 2)
        new RecordHeader(header.getUTF8String(0).toString, if (header.isNullAt(1)) null else header.getBinary(1)): Header
      }
    }
}
