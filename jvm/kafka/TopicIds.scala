package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.time.Duration
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, DescribeTopicsOptions, ListOffsetsOptions, OffsetSpec}
import org.apache.kafka.common.{TopicPartition, Uuid}
import org.apache.kafka.common.errors.{InvalidTopicException, UnknownTopicOrPartitionException}

import org.apache.spark.kafka010.KafkaConfigUpdater
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Asks brokers for the ids of topics. A topic that is deleted and created again has a new id, which the offsets of a
 * checkpoint do not show.
 *
 * @param options the options of a Kafka source or sink
 */
private[tailrace] final class TopicIds(options: CaseInsensitiveStringMap) {
  import TopicIds._

  private val lock = new Object
  private var client: Option[Admin] = None

  /** Return the topics that exist. */
  def of(topics: Set[String]): Map[String, Topic] = {
    val asked = admin.describeTopics(topics.asJava, new DescribeTopicsOptions().timeoutMs(TimeoutMs)).topicNameValues().asScala
    asked.toMap.flatMap { case (name, reply) =>
      try {
        val topic = reply.get(2L * TimeoutMs, MILLISECONDS)
        val id = Option(topic.topicId).filter(_ != Uuid.ZERO_UUID).map(_.toString).getOrElse(NoId)
        Some(name -> Topic(id, topic.partitions().asScala.map(_.partition).toSet))
      } catch { case missing: ExecutionException if isMissing(missing.getCause) => None }
    }
  }

  /** Return the offsets of the first records of partitions. */
  def firstOffsets(partitions: Set[TopicPartition]): Map[TopicPartition, Long] = {
    val specs = partitions.map(_ -> OffsetSpec.earliest()).toMap.asJava
    val asked = admin.listOffsets(specs, new ListOffsetsOptions().timeoutMs(TimeoutMs)).all()
    asked.get(2L * TimeoutMs, MILLISECONDS).asScala.map { case (partition, first) => partition -> first.offset }.toMap
  }

  /** Return the offsets after the last records of partitions. */
  def endOffsets(partitions: Set[TopicPartition]): Map[TopicPartition, Long] = {
    val specs = partitions.map(_ -> OffsetSpec.latest()).toMap.asJava
    val asked = admin.listOffsets(specs, new ListOffsetsOptions().timeoutMs(TimeoutMs)).all()
    asked.get(2L * TimeoutMs, MILLISECONDS).asScala.map { case (partition, end) => partition -> end.offset }.toMap
  }

  def close(): Unit = lock.synchronized {
    client.foreach(_.close(Duration.ZERO))
    client = None
  }

  private def admin: Admin = lock.synchronized {
    if (client.isEmpty) client = Some(Admin.create(configuration(options)))
    client.get
  }
}

private[tailrace] object TopicIds {

  /** The id of a topic whose broker knows none: brokers older than Kafka 2.8, or without KRaft before 3.0. */
  val NoId = ""
  private val TimeoutMs = 5000
  private val Prefix = "kafka."

  final case class Topic(id: String, partitions: Set[Int])

  /** The configuration of a Kafka client, as the connector makes it from a source's or a sink's options. */
  private def configuration(options: CaseInsensitiveStringMap): ju.Map[String, Object] = {
    val parameters = options.asCaseSensitiveMap().asScala.toMap.collect {
      case (key, value) if key.toLowerCase(ju.Locale.ROOT).startsWith(Prefix) => key.drop(Prefix.length) -> (value: Object)
    }
    KafkaConfigUpdater("source", parameters).setAuthenticationConfigIfNeeded().build()
  }

  private def isMissing(reply: Throwable): Boolean =
    reply.isInstanceOf[UnknownTopicOrPartitionException] || reply.isInstanceOf[InvalidTopicException]
}
