package org.apache.spark.sql.kafka010.tailrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.kafka010.KafkaOffsetRange

/**
 * The connector's reader of a micro-batch, whose query may continue without records that are gone.
 *
 * The connector only writes to the executor's log which offsets it passes. This reader names them to the driver. An offset
 * may also be missing because of a transaction or compaction, so the connector's own count of losses decides.
 *
 * @param run the run of the query
 */
private[tailrace] final class MicroBatchReader(inner: PartitionReader[InternalRow], range: KafkaOffsetRange, run: String)
    extends PartitionReader[InternalRow] {
  import MicroBatchReader._

  private var expected = range.fromOffset
  private var losses = 0L

  override def next(): Boolean = {
    val hasRecord = inner.next()
    val offset = if (hasRecord) inner.get().getLong(OffsetColumn) else range.untilOffset
    if (offset != expected) passed(offset)
    expected = if (hasRecord) offset + 1 else offset
    hasRecord
  }

  /** Name the records before an offset, if the connector has not found them. */
  private def passed(offset: Long): Unit = {
    val counted = inner.currentMetricsValues().filter(each => LossMetrics(each.name)).map(_.value).sum
    if (counted > losses && expected >= 0) {
      RunChannel.recordsLost(LossReport(run, RecordsLost.deleted(range.topicPartition, expected, offset)))
    }
    losses = counted
  }

  override def get(): InternalRow = inner.get()
  override def currentMetricsValues(): Array[CustomTaskMetric] = inner.currentMetricsValues()
  override def close(): Unit = inner.close()
}

private object MicroBatchReader {

  /** Of the connector's rows: key, value, topic, partition, offset, ... */
  private val OffsetColumn = 4
  private val LossMetrics = Set("offsetOutOfRange", "dataLoss")
}
