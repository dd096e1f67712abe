package org.apache.spark.sql.kafka010.tailrace

import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, ReadLimit, SupportsAdmissionControl, SupportsRealTimeMode}
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition

/** The tasks that a real-time batch would make of a Kafka source; the connector tells of them to its own package alone. */
object KafkaTasks {

  /**
   * The partition that each task would read, in the order of the tasks. No record is read; where it starts for the
   * first time, the first offsets are written to the stream's own folder.
   *
   * @param saved where a checkpoint says that it goes on
   */
  def of(
      stream: MicroBatchStream with SupportsAdmissionControl with SupportsRealTimeMode,
      saved: Option[String]): Seq[String] = {
    stream.prepareForRealTimeMode()
    val start = saved.map(stream.deserializeOffset).getOrElse(stream.initialOffset())
    stream.latestOffset(start, ReadLimit.allAvailable())
    named(stream.planInputPartitions(start).toSeq)
  }

  /** The names of what tasks read, in the order of the tasks; nothing where it is not Kafka. */
  def named(tasks: Seq[InputPartition]): Seq[String] = tasks.collect { case partition: KafkaBatchInputPartition =>
    partition.offsetRange.topicPartition.toString
  }
}
