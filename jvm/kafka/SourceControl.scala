package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.util.control.NonFatal

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table}
import org.apache.spark.sql.execution.streaming.runtime.{StreamExecution, StreamingRelation}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.kafka010.KafkaSourceProvider
import org.apache.spark.sql.util.CaseInsensitiveStringMap
import org.apache.spark.util.Utils

/** The one place where the controlled source enters a query. */
object SourceControl {
  private val KafkaTable = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"
  private val FailOnDataLoss = "failOnDataLoss"
  private val SparkVersions = Seq("4.3.")
  private val ConnectorVersions = Seq("4.2.")

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

  /**
   * Why the batches of a query cannot end on request; empty if they can.
   *
   * In real time a batch ends when all of its sources end theirs. In micro-batch one source can end the query between two
   * batches.
   */
  def uncontrolled(frame: DataFrame, realTime: Boolean): String = {
    val rows = frame.asInstanceOf[Dataset[_]]
    val (kafka, others) = rows.queryExecution.analyzed.collectLeaves().filter(_.isStreaming).partition {
      case relation: StreamingRelationV2 => isKafka(relation.table)
      case _ => false
    }
    if (unsupported.nonEmpty) unsupported
    else if (kafka.isEmpty) "it reads no Kafka topic"
    else if (isDisabled(rows.sparkSession.sessionState.conf)) {
      s"${DisabledReaders.key} makes Spark read Kafka with an older source"
    } else if (realTime && others.nonEmpty) {
      s"it also reads ${others.map(nameOf).distinct.mkString(", ")}, which cannot end a batch on request"
    } else ""
  }

  private val DisabledReaders = SQLConf.DISABLED_V2_STREAMING_MICROBATCH_READERS

  private def isDisabled(conf: SQLConf): Boolean =
    Utils.stringToSeq(conf.getConf(DisabledReaders)).contains(classOf[KafkaSourceProvider].getName)

  private def nameOf(source: LogicalPlan): String = source match {
    case relation: StreamingRelationV2 => relation.sourceName
    case relation: StreamingRelation => relation.sourceName
    case other => other.nodeName
  }

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
