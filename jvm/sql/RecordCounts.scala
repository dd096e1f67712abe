package org.apache.spark.sql.tailrace

import java.{util => ju}

import scala.collection.mutable

import org.apache.spark.util.AccumulatorV2

/**
 * The number of good records, and of malformed ones by reason, summed over all tasks of a query.
 *
 * Heartbeats read it while a task counts, so every access is synchronized.
 */
class RecordCounts extends AccumulatorV2[String, ju.Map[String, java.lang.Long]] {
  private var accepted = 0L
  private val refused = mutable.HashMap.empty[String, Long]

  def accept(): Unit = synchronized { accepted += 1 }

  def refuse(reason: String): Unit = synchronized { refused.update(reason, refused.getOrElse(reason, 0L) + 1) }

  override def add(reason: String): Unit = refuse(reason)

  override def isZero: Boolean = synchronized { accepted == 0 && refused.isEmpty }

  override def copy(): RecordCounts = {
    val copied = new RecordCounts
    copied.merge(this)
    copied
  }

  override def reset(): Unit = synchronized {
    accepted = 0
    refused.clear()
  }

  override def merge(other: AccumulatorV2[String, ju.Map[String, java.lang.Long]]): Unit = other match {
    case counts: RecordCounts =>
      // Read before this one is locked: two that merge each other would deadlock.
      val update = counts.value
      synchronized {
        update.forEach { (reason, number) =>
          if (reason.isEmpty) accepted += number
          else refused.update(reason, refused.getOrElse(reason, 0L) + number)
        }
      }
    case _ => throw new UnsupportedOperationException(s"cannot merge a ${other.getClass.getName}")
  }

  /** Malformed records by reason; good records under the empty string. */
  override def value: ju.Map[String, java.lang.Long] = synchronized {
    val all = new ju.HashMap[String, java.lang.Long]()
    refused.foreach { case (reason, number) => all.put(reason, number) }
    all.put("", accepted)
    all
  }
}
