package org.apache.spark.sql.kafka010.tailrace

import scala.collection.mutable

import org.apache.kafka.common.TopicPartition
import org.json4s.JsonAST.{JArray, JBool, JField, JInt, JNull, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods.{compact, render}

/** Where the readers of a run are: one entry for each partition of the batch that is open or was the last one. */
private[tailrace] final class Positions {
  import Positions._

  private var batch = -1L
  private val known = mutable.Map.empty[(Int, TopicPartition), Known]

  /** The partitions that a reader of the open batch reads. */
  private val read = mutable.Set.empty[(Int, TopicPartition)]

  /** Begin a batch of a source; its partitions are read from here on. */
  def planned(source: Int, next: Long, tasks: Seq[RealTimePartition]): Unit = synchronized {
    if (next != batch) read.clear()
    batch = next
    val ranges = tasks.zipWithIndex.flatMap { case (task, number) => task.ranges.map(number -> _) }
    val still = ranges.map { case (_, range) => range.topicPartition }.toSet
    known.filterInPlace { case ((of, topicPartition), _) => of != source || still.contains(topicPartition) }
    ranges.foreach { case (task, range) =>
      val start = ReaderPosition(source, range.topicPartition, task, range.from, range.from, 0, 0, 0, Waiting.Nothing)
      known((source, range.topicPartition)) = Known(start, System.nanoTime())
    }
  }

  def opened(reader: ReaderOpened): Unit = synchronized {
    if (reader.batch == batch) read ++= reader.partitions.map(reader.source -> _)
  }

  def closed(reader: ReaderClosed): Unit = synchronized {
    note(reader.batch, reader.positions)
    if (reader.batch == batch) read --= reader.positions.map(each => each.source -> each.topicPartition)
  }

  /** Note what readers have reported; a report of an earlier batch comes too late. */
  def note(of: Long, positions: Seq[ReaderPosition]): Unit = synchronized {
    if (of == batch) {
      positions.foreach(each => known((each.source, each.topicPartition)) = Known(each, System.nanoTime()))
    }
  }

  /** The positions as JSON, with what is known of the ends of the topics. */
  def json(ends: Int => Option[LatestOffsets]): String = synchronized {
    val now = System.nanoTime()
    compact(render(JArray(known.toList.map { case (place @ (source, topicPartition), Known(position, reportedNs)) =>
      val latest = ends(source)
      val end: JValue = latest.flatMap(_.known.get(topicPartition)).map(known => JInt(known)).getOrElse(JNull)
      val unansweredMs = latest.map(_.unansweredMs).getOrElse(0L)
      val isRead = read.contains(place) && now - reportedNs < ReportLostNs
      JObject(
        JField("source", JInt(source)),
        JField("topic", JString(topicPartition.topic)),
        JField("partition", JInt(topicPartition.partition)),
        JField("task", JInt(position.task)),
        JField("offset", JInt(position.position)),
        JField("safe", JInt(position.safe)),
        JField("end", end),
        JField("records", JInt(position.records)),
        JField("bytes", JInt(position.bytes)),
        JField("last_record_ms", JInt(position.lastMs)),
        JField("is_read", JBool(isRead)),
        JField("waits_for", JString(if (isRead) position.waits.forWhat else "")),
        JField("waited_ms", JInt(position.waits.ms)),
        JField("unanswered_ms", JInt(unansweredMs)))
    })))
  }
}

private[tailrace] object Positions {
  private final case class Known(position: ReaderPosition, reportedNs: Long)

  /** Executors report twice a second. Without a report for this long a reader counts as gone: an executor may be lost. */
  private val ReportLostNs = 3000000000L
}
