package org.apache.spark.sql.kafka010.tailrace

import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, ReadLimit, SupportsAdmissionControl, SupportsRealTimeMode}
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition

/** The tasks of a real-time batch over a Kafka source. Only the connector's own package can ask for them. */
object KafkaTasks {

  /**
   * Return the partition that each task would read, in task order. No record is read. On a first start, Spark writes the
   * initial offsets to the stream's folder.
   *
   * @param saved the offsets of the checkpoint, if there is one
   */
  def of(
      stream: MicroBatchStream with SupportsAdmissionControl with SupportsRealTimeMode,
      saved: Option[String]): Seq[String] = {
    stream.prepareForRealTimeMode()
    val start = saved.map(stream.deserializeOffset).getOrElse(stream.initialOffset())
    stream.latestOffset(start, ReadLimit.allAvailable())
    partitionsOf(stream.planInputPartitions(start).toSeq)
  }

  /** Return the topic partitions that tasks read, in task order; empty for a source other than Kafka. */
  def partitionsOf(tasks: Seq[InputPartition]): Seq[String] = tasks.collect {
    case partition: KafkaBatchInputPartition => partition.offsetRange.topicPartition.toString
    case task: RealTimePartition => task.ranges.map(_.topicPartition).mkString(", ")
  }
}
