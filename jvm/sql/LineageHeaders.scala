package org.apache.spark.sql.tailrace

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.catalyst.util.{ArrayData, GenericArrayData}
import org.apache.spark.unsafe.types.UTF8String

/** Needed by `StaticInvoke`, which looks up a static method by its class. */
class LineageHeaders

/** Builds the headers of an output record for the Kafka sink. It runs for every record, so it allocates little. */
object LineageHeaders {
  private val Topic = UTF8String.fromString(HeaderNames.Topic)
  private val Partition = UTF8String.fromString(HeaderNames.Partition)
  private val Offset = UTF8String.fromString(HeaderNames.Offset)
  private val EventTime = UTF8String.fromString(HeaderNames.EventTime)
  private val Id = UTF8String.fromString(HeaderNames.Id)

  /**
   * All values are text: the topic, the partition, the offset, and the event time in milliseconds since 1970.
   *
   * @param id the name of the output; null if it has none
   */
  def of(
      own: ArrayData,
      topic: UTF8String,
      partition: Int,
      offset: Long,
      withoutEventTime: Boolean,
      eventTimeMicros: Long,
      id: Array[Byte]): ArrayData = {
    val before = if (own == null) 0 else own.numElements()
    val added = (if (topic == null) 0 else 3) + (if (withoutEventTime) 0 else 1) + (if (id == null) 0 else 1)
    val headers = new Array[Any](before + added)
    var next = 0
    while (next < before) {
      headers(next) = own.getStruct(next, 2)
      next += 1
    }
    if (topic != null) {
      headers(next) = header(Topic, topic.getBytes)
      headers(next + 1) = header(Partition, decimal(partition))
      headers(next + 2) = header(Offset, decimal(offset))
      next += 3
    }
    if (!withoutEventTime) {
      headers(next) = header(EventTime, decimal(Math.floorDiv(eventTimeMicros, 1000L)))
      next += 1
    }
    if (id != null) headers(next) = header(Id, id)
    new GenericArrayData(headers)
  }

  private def header(name: UTF8String, value: Array[Byte]): InternalRow = new GenericInternalRow(Array[Any](name, value))

  private def decimal(number: Long): Array[Byte] = java.lang.Long.toString(number).getBytes(UTF_8)
}
