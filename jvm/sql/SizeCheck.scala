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

/** A result that Kafka would refuse for its size. */
class ResultTooLargeException(message: String) extends RuntimeException(message)

/**
 * Ends a query at a result that the producer or the topic would refuse, while the record that it came from is still known.
 *
 * The sizes are Kafka's own: what the producer compares, and what a batch of this one record takes.
 *
 * @param topic the sink's topic; null if each row names its own
 * @param request the producer's `max.request.size`
 * @param message the topic's `max.message.bytes`; `Int.MaxValue` if it is not known, or if the producer compresses
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
    if (SizeCheck.atMost(value, key, headers) > smallest) {
      val kept = SizeCheck.kafkaHeaders(headers)
      val requested =
        AbstractRecords.estimateSizeInBytesUpperBound(RecordBatch.CURRENT_MAGIC_VALUE, CompressionType.NONE, key, value, kept)
      val batch = DefaultRecordBatch.RECORD_BATCH_OVERHEAD +
        DefaultRecord.sizeInBytes(0, 0L, SizeCheck.sizeOf(key), SizeCheck.sizeOf(value), kept)
      val over =
        if (requested > request) Some(s"$requested bytes, more than max.request.size=$request")
        else if (batch > message) Some(s"$batch bytes, more than max.message.bytes=$message")
        else None
      over.foreach { size =>
        val of = if (sourceTopic == null) "a result" else s"the result of record $sourceTopic-$partition@$offset"
        throw new ResultTooLargeException(s"$of for topic ${if (rowTopic == null) topic else rowTopic} has $size")
      }
    }
    value
  }
}

object SizeCheck {

  /** The most that Kafka adds to a record, and to each header, for lengths and a batch's own fields. */
  private val Overhead = 128L
  private val HeaderOverhead = 10L

  /**
   * The rows of a Kafka sink without the hidden columns, each checked.
   *
   * Like the check of a source's records it is not deterministic: the optimizer neither moves nor repeats it.
   */
  def check(frame: DataFrame, topic: String, request: Int, message: Int): DataFrame = {
    val plan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    def column(name: String, otherwise: DataType): Expression =
      plan.output.find(_.name == name).getOrElse(Literal(null, otherwise))
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
        // A null where the method takes a number would make Spark return null without calling it.
        Coalesce(Seq(column(Lineage.Partition, IntegerType), Literal(0))),
        Coalesce(Seq(column(Lineage.Offset, LongType), Literal(0L)))),
      propagateNull = false,
      returnNullable = true,
      isDeterministic = false)
    val shown = plan.output.filterNot(attribute => Lineage.isHidden(attribute.name)).map {
      case value if value.name == "value" => Alias(checked(value), "value")()
      case other => other
    }
    Dataset.ofRows(frame.sparkSession.asInstanceOf[SparkSession], Project(shown, plan))
  }

  /** No less than Kafka's own size, without an object made. */
  private def atMost(value: Array[Byte], key: Array[Byte], headers: ArrayData): Long = {
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
