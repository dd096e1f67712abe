package org.apache.spark.sql.kafka010.tailrace

import scala.collection.mutable

import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.header.Headers

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/**
 * A task's view of the outputs that exist already. The driver is asked for a partition at its first record.
 *
 * @param delivery the id of the run's delivery
 * @param retry the id of the attempt, if others of the task have failed, which may have written outputs
 */
final class TaskGuard private (delivery: String, query: String, retry: Option[Long]) {
  private val parts = mutable.HashMap.empty[(Int, TopicPartition), GuardPart]
  private val known = mutable.HashSet.empty[String]

  /** The part of a partition whose records are read from this one on; empty if it ends before. */
  def part(source: Int, topicPartition: TopicPartition, from: Long): GuardPart =
    RunChannel.guardPart(GuardRequest(delivery, source, topicPartition, from, retry))

  /** Whether an output with these headers exists in a topic. Any thread may ask. */
  def contains(topic: String, headers: Headers): Boolean = OutputId.of(headers, query).exists { id =>
    val its = synchronized {
      parts.getOrElseUpdate((id.source, id.topicPartition), part(id.source, id.topicPartition, 0L))
    }
    its.contains(topic, id.maker, id.offset, id.index)
  }

  /** Let the driver note a topic before the first row of this task goes there. */
  def use(topic: String): Unit = if (known.add(topic)) RunChannel.topicUsed(TopicUse(delivery, topic))
}

object TaskGuard {

  /** The guard of a task; None if its run has none. */
  def of(context: TaskContext): Option[TaskGuard] = for {
    task <- Option(context)
    delivery <- Option(task.getLocalProperty(Delivery.Setting)).filter(_.nonEmpty)
    query <- Option(task.getLocalProperty(StreamExecution.QUERY_ID_KEY))
  } yield new TaskGuard(delivery, query, Retries.of(task))
}
