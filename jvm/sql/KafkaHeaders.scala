package org.apache.spark.sql.tailrace

import java.{util => ju}
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import org.apache.kafka.common.header.Header
import org.apache.kafka.common.header.internals.RecordHeader

import org.apache.spark.sql.catalyst.util.ArrayData

/** Headers of Spark's Kafka columns as headers of a Kafka record. */
object KafkaHeaders {

  /** Return a new list, which may be extended; it is empty if the column is null. */
  def of(column: ArrayData): ju.List[Header] = {
    val count = if (column == null) 0 else column.numElements()
    val headers = new ju.ArrayList[Header](count)
    var index = 0
    while (index < count) {
      val header = column.getStruct(index, 2)
      headers.add(new RecordHeader(header.getUTF8String(0).toString, if (header.isNullAt(1)) null else header.getBinary(1)))
      index += 1
    }
    headers
  }

  /** Return the last value of a header as text; None if there is none. */
  def text(headers: ju.List[Header], name: String): Option[String] =
    headers.asScala.findLast(each => each.key == name && each.value != null).map(each => new String(each.value, UTF_8))
}
