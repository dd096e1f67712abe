package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.nio.ByteBuffer
import java.time.Duration

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.kafka.clients.CommonClientConfigs
import org.apache.kafka.clients.consumer.{ConsumerConfig, KafkaConsumer, OffsetOutOfRangeException}
import org.apache.kafka.common.TopicPartition
import org.apache.kafka.common.errors.TopicAuthorizationException
import org.apache.kafka.common.header.Headers
import org.apache.kafka.common.serialization.Deserializer

import org.apache.spark.kafka010.KafkaConfigUpdater

/** The outputs that must have come to rest when all are read. */
private[tailrace] sealed trait Settling

private[tailrace] object Settling {
  case object All extends Settling

  /** Those about the records of some partitions. Others are being written by tasks that run. */
  final case class Of(places: Set[Retries.Place]) extends Settling
}

/** Reads the headers of output topics to find which outputs of a query exist; see [[OutputGuard.read]]. */
private[tailrace] final class GuardReader(
    producer: ju.Map[String, Object],
    query: String,
    recorded: Map[TopicPartition, Long],
    progress: (Long, Long) => Unit,
    settling: Settling) {
  import GuardReader._

  private val consumer = new KafkaConsumer[Void, Void](configuration(producer), Skipped, Skipped)
  private val parts = mutable.HashMap.empty[(Int, TopicPartition), GuardPart.Builder]
  private var unsettled = 0L

  def read(): OutputGuard = readable {
    val starts = startsOf(recorded.keySet.map(_.topic))
    consumer.assign(starts.keySet.asJava)
    requireKept(starts)
    starts.foreach { case (partition, start) => consumer.seek(partition, start) }
    readToEnd(starts)
    val beganNs = System.nanoTime()
    var before = 0L
    do { // requests of a writer that has ended may still be on their way
      before = unsettled
      Thread.sleep(QuietMs)
      readToEnd(starts)
    } while (unsettled > before && !isTooLate(beganNs))
    new OutputGuard(parts.view.mapValues(_.result()).toMap)
  }

  /** A task's next attempt must not wait for long, even if an executor that was given up still writes. */
  private def isTooLate(beganNs: Long): Boolean = settling != Settling.All && System.nanoTime() - beganNs > LongestSettlingNs

  def close(): Unit = consumer.close(Duration.ZERO)

  /** Where to begin in every partition that the topics have now; one that was added later has only outputs since then. */
  private def startsOf(topics: Set[String]): Map[TopicPartition, Long] = {
    val existing = topics.flatMap { topic =>
      Option(consumer.partitionsFor(topic)).toSeq.flatMap(_.asScala).map(each => new TopicPartition(topic, each.partition))
    }
    // A topic that did not exist is recorded with one partition.
    recorded.keys.find(each => recorded(each) > 0 && !existing(each)).foreach(gone => throw new GuardUnreadable(gone.topic, s"partition ${gone.partition} is gone"))
    existing.map(partition => partition -> recorded.getOrElse(partition, 0L)).toMap
  }

  private def requireKept(starts: Map[TopicPartition, Long]): Unit = {
    val (first, last) = (consumer.beginningOffsets(starts.keySet.asJava), consumer.endOffsets(starts.keySet.asJava))
    starts.foreach { case (partition, start) =>
      if (first.get(partition) > start) {
        throw new GuardUnreadable(
          partition.topic, s"partition ${partition.partition} begins at ${first.get(partition)}, and $start is needed")
      }
      if (last.get(partition) < start) {
        throw new GuardUnreadable(
          partition.topic, s"partition ${partition.partition} ends at ${last.get(partition)}, before $start: it is another topic")
      }
    }
  }

  /** Read what there is now. */
  private def readToEnd(starts: Map[TopicPartition, Long]): Unit = {
    val ends = consumer.endOffsets(starts.keySet.asJava).asScala.view.mapValues(_.longValue).toMap
    val total = ends.map { case (partition, end) => end - starts(partition) }.sum
    def positions = starts.keys.map(partition => partition -> consumer.position(partition)).toMap
    def read(at: Map[TopicPartition, Long]) = at.map { case (partition, position) => position - starts(partition) }.sum
    var at = positions
    var (saidNs, movedNs) = (System.nanoTime(), System.nanoTime())
    while (ends.exists { case (partition, end) => at(partition) < end }) {
      consumer.poll(PollTime).forEach(record => note(record.topic, record.headers))
      val now = System.nanoTime()
      val moved = positions
      if (moved != at) movedNs = now
      else if (now - movedNs > SilentNs) throw silent(ends, at)
      at = moved
      if (now - saidNs >= SayEveryNs) {
        saidNs = now
        progress(math.min(read(at), total), total)
      }
    }
    progress(total, total)
  }

  private def note(topic: String, headers: Headers): Unit = OutputId.of(headers, query).foreach { id =>
    parts.getOrElseUpdate((id.source, id.topicPartition), new GuardPart.Builder).add(topic, id)
    settling match {
      case Settling.Of(places) if !places((id.source, id.topicPartition)) =>
      case _ => unsettled += 1
    }
  }

  private def silent(ends: Map[TopicPartition, Long], at: Map[TopicPartition, Long]): GuardUnreadable = {
    val waited = ends.collectFirst { case (partition, end) if at(partition) < end => partition }.get
    new GuardUnreadable(
      waited.topic, s"partition ${waited.partition} has sent nothing for a minute at ${at(waited)} of ${ends(waited)}")
  }

  /** Name the topic if it cannot be read. */
  private def readable[T](work: => T): T =
    try work
    catch {
      case refused: TopicAuthorizationException =>
        throw new GuardUnreadable(refused.unauthorizedTopics.asScala.min, "this user has no right to read it")
      case removed: OffsetOutOfRangeException =>
        val (partition, offset) = removed.offsetOutOfRangePartitions.asScala.head
        throw new GuardUnreadable(partition.topic, s"partition ${partition.partition} has no offset $offset any more")
    }
}

private object GuardReader {
  private val QuietMs = 1000L
  private val LongestSettlingNs = 30000000000L
  private val PollTime = Duration.ofMillis(500)
  private val SayEveryNs = 1000000000L
  private val SilentNs = 60000000000L
  private val Login = Seq("security.", "sasl.", "ssl.")
  private val Connection = Set(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, CommonClientConfigs.CLIENT_DNS_LOOKUP_CONFIG)

  /** Keys and values are not read, and not copied. */
  private object Skipped extends Deserializer[Void] {
    override def deserialize(topic: String, data: Array[Byte]): Void = null
    override def deserialize(topic: String, headers: Headers, data: ByteBuffer): Void = null
  }

  /** The configuration of a consumer that logs in like a producer, and belongs to no group. */
  private def configuration(producer: ju.Map[String, Object]): ju.Map[String, Object] = {
    val login = producer.asScala.toMap.filter { case (name, _) => Connection(name) || Login.exists(name.startsWith) }
    val reading = Map[String, Object](
      ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG -> "false",
      ConsumerConfig.AUTO_OFFSET_RESET_CONFIG -> "none",
      ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG -> "false",
      ConsumerConfig.MAX_POLL_RECORDS_CONFIG -> "10000",
      ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG -> (8 << 20).toString)
    KafkaConfigUpdater("outputs", login ++ reading).setAuthenticationConfigIfNeeded().build()
  }
}
