package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.time.Duration
import java.util.concurrent.ExecutionException
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.annotation.tailrec
import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.admin.{Admin, DescribeTopicsOptions, ListOffsetsOptions, OffsetSpec}
import org.apache.kafka.common.{TopicPartition, Uuid}
import org.apache.kafka.common.errors.{InvalidTopicException, TopicAuthorizationException, UnknownTopicOrPartitionException}

import org.apache.spark.kafka010.KafkaConfigUpdater
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/**
 * Asks brokers for the ids of topics. A topic that is deleted and created again has a new id, which the offsets of a
 * checkpoint do not show.
 *
 * @param options the options of a Kafka source or sink
 */
private[tailrace] final class TopicIds(options: CaseInsensitiveStringMap) {
  import TopicIds._

  private var client: Option[Admin] = None
  private var isClosed = false

  /** Return the topics that exist and that this client may describe. */
  def of(topics: Set[String]): Map[String, Topic] = asking { admin =>
    val asked = admin.describeTopics(topics.asJava, new DescribeTopicsOptions().timeoutMs(TimeoutMs)).topicNameValues().asScala
    asked.toMap.flatMap { case (name, reply) =>
      try {
        val topic = reply.get(2L * TimeoutMs, MILLISECONDS)
        val id = Option(topic.topicId).filter(_ != Uuid.ZERO_UUID).map(_.toString).getOrElse(NoId)
        Some(name -> Topic(id, topic.partitions().asScala.map(_.partition).toSet))
      } catch { case unseen: ExecutionException if isUnseen(unseen.getCause) => None }
    }
  }

  /** Return the offsets of the first records of partitions. */
  def firstOffsets(partitions: Set[TopicPartition]): Map[TopicPartition, Long] = offsets(partitions, OffsetSpec.earliest())

  /** Return the offsets after the last records of partitions, those of open transactions included. */
  def endOffsets(partitions: Set[TopicPartition]): Map[TopicPartition, Long] = offsets(partitions, OffsetSpec.latest())

  private def offsets(partitions: Set[TopicPartition], spec: OffsetSpec): Map[TopicPartition, Long] = asking { admin =>
    val asked = admin.listOffsets(partitions.map(_ -> spec).toMap.asJava, new ListOffsetsOptions().timeoutMs(TimeoutMs)).all()
    asked.get(2L * TimeoutMs, MILLISECONDS).asScala.map { case (partition, its) => partition -> its.offset }.toMap
  }

  /** Ask, and connect anew after a failure: a delegation token may have expired. */
  private def asking[T](question: Admin => T): T =
    try question(admin())
    catch {
      case failed: Throwable =>
        disconnect()
        throw failed
    }

  def close(): Unit = {
    synchronized { isClosed = true }
    disconnect()
  }

  private def disconnect(): Unit = synchronized {
    client.foreach { each =>
      // A client that looks up a name or logs in cannot be interrupted, and nobody should wait for it.
      val closing = new Thread(() => Utils.tryLogNonFatalError(each.close(Duration.ZERO)), "tailrace-topics-close")
      closing.setDaemon(true)
      closing.start()
    }
    client = None
  }

  private def admin(): Admin = synchronized {
    if (isClosed) throw new IllegalStateException("the query has ended")
    if (client.isEmpty) client = Some(connect(options.asCaseSensitiveMap()))
    client.get
  }
}

private[tailrace] object TopicIds {

  /** The id of a topic whose broker knows none: brokers older than Kafka 2.8. */
  val NoId = ""
  private val TimeoutMs = 5000
  private val Prefix = "kafka."

  final case class Topic(id: String, partitions: Set[Int])

  /** Return a client that logs in like the connector's own: with a delegation token, if Spark has one for these brokers. */
  def connect(options: ju.Map[String, String]): Admin = Admin.create(configuration(options))

  /** The configuration of a Kafka client, as the connector makes it from a source's or a sink's options. */
  private def configuration(options: ju.Map[String, String]): ju.Map[String, Object] = {
    val parameters = options.asScala.toMap.collect {
      case (key, value) if key.toLowerCase(ju.Locale.ROOT).startsWith(Prefix) => key.drop(Prefix.length) -> (value: Object)
    }
    KafkaConfigUpdater("source", parameters).setAuthenticationConfigIfNeeded().build()
  }

  /** Whether a question failed because a topic does not exist. */
  @tailrec def isMissing(failed: Throwable): Boolean = failed match {
    case null => false
    case _: UnknownTopicOrPartitionException => true
    case _ => isMissing(failed.getCause)
  }

  private def isUnseen(reply: Throwable): Boolean = reply match {
    case _: UnknownTopicOrPartitionException | _: InvalidTopicException | _: TopicAuthorizationException => true
    case _ => false
  }
}
