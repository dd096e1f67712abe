package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.metric.{CustomMetric, CustomTaskMetric}
import org.apache.spark.sql.connector.read.{Batch, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming.{ContinuousStream, MicroBatchStream}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The connector's Kafka table, read by a stream whose batches can end on request.
 *
 * Spark reads equal relations with one stream, so two wrappers of one table must be equal.
 *
 * @param bounded whether a real-time query reads only what is in the topics when it starts
 * @param tasks the most tasks of a real-time query that read the table; 0 for one task per partition
 */
case class ControlledTable(inner: Table with SupportsRead, bounded: Boolean, tasks: Int) extends Table with SupportsRead {
  override def name(): String = inner.name()
  override def columns(): Array[Column] = inner.columns()
  override def partitioning(): Array[Transform] = inner.partitioning()
  override def properties(): ju.Map[String, String] = inner.properties()
  override def capabilities(): ju.Set[TableCapability] = inner.capabilities()

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val scan = inner.newScanBuilder(options)
    () => new ControlledScan(scan.build(), options, bounded, tasks)
  }
}

/** The connector's scan, except that its micro-batch stream is controlled. */
class ControlledScan(inner: Scan, options: CaseInsensitiveStringMap, bounded: Boolean, tasks: Int) extends Scan {
  override def readSchema(): StructType = inner.readSchema()
  override def description(): String = inner.description()
  override def columnarSupportMode(): Scan.ColumnarSupportMode = inner.columnarSupportMode()
  override def supportedCustomMetrics(): Array[CustomMetric] = inner.supportedCustomMetrics()
  override def reportDriverMetrics(): Array[CustomTaskMetric] = inner.reportDriverMetrics()
  override def toBatch(): Batch = inner.toBatch
  override def toContinuousStream(checkpoint: String): ContinuousStream = inner.toContinuousStream(checkpoint)

  override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
    inner.toMicroBatchStream(checkpoint) match {
      case kafka: ControlledStream.Kafka => new ControlledStream(kafka, RunControl.current(), options, bounded, tasks)
      case other => throw new IllegalStateException(s"not a stream of the Kafka connector: ${other.getClass.getName}")
    }
}
