package org.apache.spark.sql.kafka010.tailrace

import java.util.concurrent.ConcurrentHashMap

/**
 * What the driver knows about the delivery of one run.
 *
 * @param guard the outputs that exist already and must not be written again
 * @param topicUsed called before the first row of a task to a topic that its rows name; it may block
 */
final class Delivery(val id: String, val guard: OutputGuard, val topicUsed: String => Unit)

object Delivery {

  /** The setting of a query's session that names its delivery. Spark passes it on to the tasks. */
  val Setting = "spark.tailrace.delivery"

  private val all = new ConcurrentHashMap[String, Delivery]()

  def register(delivery: Delivery): Unit = all.put(delivery.id, delivery)

  def find(id: String): Option[Delivery] = Option(all.get(id))

  def remove(id: String): Unit = all.remove(id)
}
