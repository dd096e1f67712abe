package org.apache.spark.sql.kafka010.tailrace

import java.nio.charset.StandardCharsets.UTF_8

import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.Headers

import org.apache.spark.sql.tailrace.{HeaderNames, OutputIds}

/** The identity of one output of a query, as its headers have it. */
private[tailrace] final case class OutputId(
    source: Int,
    topicPartition: TopicPartition,
    offset: Long,
    maker: String,
    index: Int)

private[tailrace] object OutputId {

  /** Return the identity of an output of a query; None if the headers are not those of one. The last of each name counts. */
  def of(headers: Headers, query: String): Option[OutputId] = {
    val id = text(headers, HeaderNames.Id)
    if (id == null || !id.startsWith(query) || !id.startsWith(Separator, query.length)) {
      None
    } else {
      val parts = id.substring(query.length + 1).split(Separator)
      for {
        topic <- Option(text(headers, HeaderNames.Topic))
        partition <- number(headers, HeaderNames.Partition)
        offset <- number(headers, HeaderNames.Offset)
        if parts.length == 3
        source <- parts(0).toIntOption
        index <- parts(2).toIntOption
      } yield OutputId(source, new TopicPartition(topic, partition.toInt), offset, parts(1), index)
    }
  }

  private val Separator = OutputIds.Separator

  private def number(headers: Headers, name: String): Option[Long] = Option(text(headers, name)).flatMap(_.toLongOption)

  private def text(headers: Headers, name: String): String = {
    val header = headers.lastHeader(name)
    if (header == null || header.value == null) null else new String(header.value, UTF_8)
  }
}
