package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.kafka.clients.producer.KafkaProducer

import org.apache.spark.sql.kafka010.producer.{CachedKafkaProducer, InternalKafkaProducerPool}

/** A producer from the Kafka connector's pool, which has one per process and configuration and closes idle ones. */
class SharedProducer private (cached: CachedKafkaProducer) {
  def producer: KafkaProducer[Array[Byte], Array[Byte]] = cached.producer

  def release(): Unit = InternalKafkaProducerPool.release(cached)
}

object SharedProducer {
  def acquire(configuration: ju.Map[String, Object]): SharedProducer =
    new SharedProducer(InternalKafkaProducerPool.acquire(configuration))
}
