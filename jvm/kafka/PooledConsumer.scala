package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}
import java.time.Duration

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.commons.pool2.{BaseKeyedPooledObjectFactory, PooledObject}
import org.apache.commons.pool2.impl.{DefaultPooledObject, GenericKeyedObjectPool, GenericKeyedObjectPoolConfig}
import org.apache.kafka.clients.CommonClientConfigs.{BOOTSTRAP_SERVERS_CONFIG, GROUP_ID_CONFIG}
import org.apache.kafka.clients.consumer.KafkaConsumer
import org.apache.kafka.common.TopicPartition

import org.apache.spark.SparkEnv
import org.apache.spark.kafka010.{KafkaConfigUpdater, KafkaTokenClusterConf, KafkaTokenUtil}

/**
 * A Kafka consumer that is kept between the batches of a query: a new one would lengthen the pause at every checkpoint.
 *
 * The connector's pool cannot be used: its consumers can neither be woken nor asked for their position.
 */
private[tailrace] final class PooledConsumer private (key: PooledConsumer.Key) {
  import PooledConsumer._

  private val tokens: Option[KafkaTokenClusterConf] = KafkaTokenUtil.findMatchingTokenClusterConfig(
    SparkEnv.get.conf, key.configuration.get(BOOTSTRAP_SERVERS_CONFIG).asInstanceOf[String])
  private val configuration =
    KafkaConfigUpdater("executor", key.configuration.asScala.toMap).setAuthenticationConfigIfNeeded(tokens).build()

  val consumer: KafkaConsumer[Array[Byte], Array[Byte]] = new KafkaConsumer(configuration)
  consumer.assign(key.topicPartitions.asJava)

  /** The offset of the next record that it returns from each partition, as far as that is known. */
  var positions: Map[TopicPartition, Long] = Map.empty

  private def hasOldToken: Boolean = KafkaTokenUtil.needTokenUpdate(configuration, tokens)

  def release(): Unit = pool.returnObject(key, this)

  /** Close a consumer that may be in the middle of a request. */
  def discard(): Unit = pool.invalidateObject(key, this)

  private def close(): Unit = {
    val isInterrupted = Thread.interrupted() // Kafka's client would not close
    try consumer.close(Duration.ZERO)
    catch { case NonFatal(_) => }
    finally if (isInterrupted) Thread.currentThread().interrupt()
  }
}

private[tailrace] object PooledConsumer {
  private val IdleTimeout = Duration.ofMinutes(5)
  private val EvictionInterval = Duration.ofMinutes(1)

  /** Equal for the batches of one query: the connector gives every query a consumer group of its own, if the user does not. */
  private final class Key(val topicPartitions: Set[TopicPartition], val configuration: ju.Map[String, Object]) {
    private val group = configuration.get(GROUP_ID_CONFIG)

    override def hashCode: Int = ju.Objects.hash(topicPartitions, group)

    override def equals(other: Any): Boolean = other match {
      case key: Key => key.topicPartitions == topicPartitions && key.configuration == configuration
      case _ => false
    }
  }

  private object Factory extends BaseKeyedPooledObjectFactory[Key, PooledConsumer] {
    override def create(key: Key): PooledConsumer = new PooledConsumer(key)
    override def wrap(consumer: PooledConsumer): PooledObject[PooledConsumer] = new DefaultPooledObject(consumer)
    override def destroyObject(key: Key, pooled: PooledObject[PooledConsumer]): Unit = pooled.getObject.close()
    override def validateObject(key: Key, pooled: PooledObject[PooledConsumer]): Boolean = !pooled.getObject.hasOldToken
  }

  private val pool: GenericKeyedObjectPool[Key, PooledConsumer] = {
    val settings = new GenericKeyedObjectPoolConfig[PooledConsumer]
    settings.setMaxTotal(-1)
    settings.setMaxTotalPerKey(-1)
    settings.setMaxIdlePerKey(1)
    settings.setTestOnBorrow(true)
    settings.setJmxEnabled(false)
    settings.setMinEvictableIdleDuration(IdleTimeout)
    settings.setTimeBetweenEvictionRuns(EvictionInterval)
    new GenericKeyedObjectPool(Factory, settings)
  }

  def acquire(configuration: ju.Map[String, Object], topicPartitions: Set[TopicPartition]): PooledConsumer =
    pool.borrowObject(new Key(topicPartitions, configuration))
}
