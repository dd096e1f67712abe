package org.apache.spark.sql.tailrace

import java.nio.charset.StandardCharsets.UTF_8

import scala.collection.mutable

import org.apache.kafka.common.TopicPartition

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.kafka010.tailrace.{GuardPart, TaskGuard}
import org.apache.spark.unsafe.types.UTF8String

/**
 * Names the outputs that one part of a query makes of its records, in one task and thread.
 *
 * The outputs of a record come one after the other. They are counted before any is dropped, so that a second run over the
 * same record gives them the same names.
 */
final class OutputIds(maker: String) {
  import OutputIds._

  private val query: String = Option(TaskContext.get()).map(_.getLocalProperty(StreamExecution.QUERY_ID_KEY)).orNull
  private val guard: Option[TaskGuard] = TaskGuard.of(TaskContext.get())

  /** Whether some outputs may exist already, and topics are noted. */
  val isGuarded: Boolean = guard.isDefined
  private val places = new mutable.ArrayBuffer[Place]
  private var at: Place = _

  /** Count an output of a record; return its name, or null if the rows are not those of a streaming query. */
  def next(source: Int, topic: UTF8String, partition: Int, offset: Long): Array[Byte] =
    if (query == null) {
      null
    } else {
      if (at == null || !at.is(source, topic, partition)) at = placeOf(source, topic, partition)
      at.count(offset)
      at.id
    }

  /** Whether the output that was counted last exists in a topic. */
  def exists(outputTopic: String): Boolean = isGuarded && at.exists(outputTopic)

  /** Let the driver note a topic before the first output goes there. */
  def use(outputTopic: String): Unit = guard.foreach(_.use(outputTopic))

  private def placeOf(source: Int, topic: UTF8String, partition: Int): Place =
    places.find(_.is(source, topic, partition)).getOrElse {
      val place = new Place(source, topic.toString, partition)
      places += place
      place
    }

  /** The last record of a partition and how many outputs it has so far. */
  private final class Place(source: Int, topic: String, partition: Int) {
    private val name = UTF8String.fromString(topic)
    private val prefix = Seq(query, source.toString, maker, "").mkString(Separator)
    private val ids = new mutable.ArrayBuffer[Array[Byte]]
    private var offset = -1L
    private var index = 0
    private var part: GuardPart = _

    def is(otherSource: Int, otherTopic: UTF8String, otherPartition: Int): Boolean =
      partition == otherPartition && source == otherSource && name == otherTopic

    def count(next: Long): Unit =
      if (next == offset) {
        index += 1
      } else {
        offset = next
        index = 0
      }

    /** The same bytes for most records, because few have many outputs. */
    def id: Array[Byte] =
      if (index < ids.length) {
        ids(index)
      } else {
        val made = (prefix + index).getBytes(UTF_8)
        if (index < KeptIds) ids += made
        made
      }

    def exists(outputTopic: String): Boolean = {
      if (part == null) part = guard.get.part(source, new TopicPartition(topic, partition), offset)
      if (offset >= part.end) part = GuardPart.Empty // free it
      part.contains(outputTopic, maker, offset, index)
    }
  }
}

object OutputIds {

  /** Between the parts of an output's name: query, source, maker, index. */
  val Separator = ":"

  /** The maker of results. */
  val Results = "o"

  /** The maker of dead letters for malformed records. */
  val Malformed = "r"

  /** The maker of dead letters for failures of a Python operator with so many others below it. */
  def ofPython(depth: Int): String = s"p$depth"

  private val KeptIds = 64
}
