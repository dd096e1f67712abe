package org.apache.spark.sql.tailrace

import scala.collection.mutable

import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.unsafe.types.UTF8String

/**
 * Makes the headers of a query's results, with a name for each, and drops the results that exist already.
 *
 * Each task has its own copy, and one thread calls it.
 *
 * @param topic the sink's topic; null if each row names its own
 */
case class OutputHeaders(topic: String) {
  @transient private lazy val ids = new OutputIds(OutputIds.Results)
  @transient private lazy val topics = mutable.HashMap.empty[UTF8String, String]

  /** Return the headers of a result; null if it exists. */
  def of(
      own: ArrayData,
      sourceTopic: UTF8String,
      partition: Int,
      offset: Long,
      withoutEventTime: Boolean,
      eventTimeMicros: Long,
      source: Int,
      rowTopic: UTF8String): ArrayData = {
    val id = if (sourceTopic == null) null else ids.next(source, sourceTopic, partition, offset)
    if (id != null && ids.isGuarded && isDropped(rowTopic)) null
    else LineageHeaders.of(own, sourceTopic, partition, offset, withoutEventTime, eventTimeMicros, id)
  }

  private def isDropped(rowTopic: UTF8String): Boolean = {
    val to = if (rowTopic == null) topic else textOf(rowTopic)
    if (to == null) { // the sink refuses it
      false
    } else {
      val exists = ids.exists(to)
      if (!exists && rowTopic != null) ids.use(to)
      exists
    }
  }

  private def textOf(rowTopic: UTF8String): String = {
    val known = topics.get(rowTopic)
    known.getOrElse {
      val text = rowTopic.toString
      topics(rowTopic.clone()) = text // the row is used again
      text
    }
  }
}
