package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.util.control.NonFatal

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.kafka010.KafkaSourceProvider
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The one place where the controlled source enters a query. */
object SourceControl {
  private val KafkaTable = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"
  private val FailOnDataLoss = "failOnDataLoss"
  private val SparkVersions = Seq("4.3.")
  private val ConnectorVersions = Seq("4.2.", "4.3.")

  /**
   * Return the same rows, read by streams whose batches can end on request.
   *
   * @param tasks the most tasks that read each source; 0 for one task per partition
   */
  def control(frame: DataFrame, bounded: Boolean, tasks: Int): DataFrame =
    onSources(frame)(relation => table => relation.copy(table = ControlledTable(table, bounded, tasks)))

  /** Return the same rows, whose Kafka sources have this value of the option `failOnDataLoss`. */
  def failOnDataLoss(frame: DataFrame, value: String): DataFrame = onSources(frame) { relation => _ =>
    relation.copy(extraOptions = withOption(relation.extraOptions, FailOnDataLoss, value))
  }

  private def onSources(frame: DataFrame)(
      change: StreamingRelationV2 => Table with SupportsRead => StreamingRelationV2): DataFrame = {
    val rows = frame.asInstanceOf[Dataset[_]]
    Dataset.ofRows(
      rows.sparkSession,
      rows.queryExecution.analyzed.transform {
        case relation @ StreamingRelationV2(_, _, table: SupportsRead, _, _, _, _, _, _) if isKafka(table) =>
          change(relation)(table)
      })
  }

  private def withOption(options: CaseInsensitiveStringMap, key: String, value: String): CaseInsensitiveStringMap = {
    val all = new ju.HashMap[String, String](options.asCaseSensitiveMap())
    all.keySet.removeIf(_.equalsIgnoreCase(key))
    all.put(key, value)
    new CaseInsensitiveStringMap(all)
  }

  /** The options of a query's controlled sources, in the order of their offsets in the checkpoint. */
  private[tailrace] def sources(frame: DataFrame): Seq[CaseInsensitiveStringMap] =
    frame.asInstanceOf[Dataset[_]].queryExecution.analyzed.collect {
      case relation @ StreamingRelationV2(_, _, _: ControlledTable, _, _, _, _, _, _) => relation
    }.distinct.map(_.extraOptions)

  private[tailrace] def failsOnDataLoss(options: CaseInsensitiveStringMap): Boolean =
    options.getBoolean(FailOnDataLoss, true)

  /** How many of a query's sources would be controlled. */
  def controllable(frame: DataFrame): Int =
    frame.asInstanceOf[Dataset[_]].queryExecution.analyzed.collect {
      case StreamingRelationV2(_, _, table: SupportsRead, _, _, _, _, _, _) if isKafka(table) => table
    }.size

  /** Why the versions of Spark and connector cannot be controlled; empty if they can. */
  def unsupported: String = unsupported(SPARK_VERSION, connectorVersion)

  def unsupported(spark: String, connector: String): String =
    if (!SparkVersions.exists(spark.startsWith)) s"Spark $spark is not one of ${in(SparkVersions)}"
    else if (!ConnectorVersions.exists(connector.startsWith)) {
      s"the Kafka connector $connector is not one of ${in(ConnectorVersions)}"
    } else {
      try {
        classOf[StreamExecution].getDeclaredField("state").setAccessible(true)
        ""
      } catch { case NonFatal(missing) => s"this Spark has no access to a query's state: ${missing.getMessage}" }
    }

  private def connectorVersion: String =
    Option(classOf[KafkaSourceProvider].getPackage.getImplementationVersion).getOrElse("of an unknown version")

  private def in(versions: Seq[String]): String = versions.map(_ + "x").mkString(" and ")

  private def isKafka(table: Table): Boolean = table.getClass.getName == KafkaTable
}
