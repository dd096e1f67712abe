package org.apache.spark.sql.tailrace

import java.{util => ju}

import scala.collection.mutable

import org.apache.spark.util.AccumulatorV2

/** How many records were good, and how many were not for which reason, in all tasks of a query together. Heartbeats read it while a task counts. */
class RecordCounts extends AccumulatorV2[String, ju.Map[String, java.lang.Long]] {
  private var accepted = 0L
  private val refused = mutable.HashMap.empty[String, Long]

  def accept(): Unit = synchronized { accepted += 1 }

  def refuse(reason: String): Unit = synchronized { refused.update(reason, refused.getOrElse(reason, 0L) + 1) }

  override def add(reason: String): Unit = refuse(reason)

  override def isZero: Boolean = synchronized { accepted == 0 && refused.isEmpty }

  override def copy(): RecordCounts = {
    val twin = new RecordCounts
    twin.merge(this)
    twin
  }

  override def reset(): Unit = synchronized {
    accepted = 0
    refused.clear()
  }

  override def merge(other: AccumulatorV2[String, ju.Map[String, java.lang.Long]]): Unit = other match {
    case counts: RecordCounts =>
      // Read before this one is locked: two that merge each other would wait for each other for ever.
      val update = counts.value
      synchronized {
        update.forEach { (reason, number) =>
          if (reason.isEmpty) accepted += number
          else refused.update(reason, refused.getOrElse(reason, 0L) + number)
        }
      }
    case _ => throw new UnsupportedOperationException(s"cannot merge a ${other.getClass.getName}")
  }

  /** The refused by reason, and the good under the empty reason. */
  override def value: ju.Map[String, java.lang.Long] = synchronized {
    val all = new ju.HashMap[String, java.lang.Long]()
    refused.foreach { case (reason, number) => all.put(reason, number) }
    all.put("", accepted)
    all
  }
}
