package org.apache.spark.sql.kafka010.tailrace

import java.{util => ju}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.execution.streaming.sources.ForeachWriterTable
import org.apache.spark.sql.kafka010.{KafkaSourceProvider, KafkaWriter}
import org.apache.spark.sql.streaming.{OutputMode, StreamingQuery, Trigger}
import org.apache.spark.sql.tailrace.{DeadLetters, KilledTaskCounts, RecordCounts, SizeCheck}

/** The counts of the results that Kafka refuses, by reason. */
case class RefusedCounts(counts: RecordCounts)(val killed: KilledTaskCounts)

object RefusedCounts {
  def of(session: SparkSession, pipeline: String): RefusedCounts = {
    val counts = new RecordCounts
    counts.register(session.sparkContext, Some(s"tailrace refused results of $pipeline"), countFailedValues = true)
    RefusedCounts(counts)(new KilledTaskCounts(session.sparkContext, counts))
  }
}

/** Starts real-time queries that write with [[KafkaSink]]. */
object SinkStart {

  /**
   * Start a query.
   *
   * Spark's real-time mode accepts a few sinks by the names of their classes, among them the one for a `ForeachWriter`, which
   * gets each row at once.
   *
   * @param options the options of Spark's Kafka sink
   * @param sizes the largest result that the producer and the topic accept
   * @param letters where refused results go; null if they end the query
   * @param largest the largest dead letter
   */
  def start(
      frame: DataFrame,
      name: String,
      checkpoint: String,
      intervalMs: Long,
      options: ju.Map[String, String],
      sizes: SizeCheck,
      letters: DeadLetters,
      largest: Int,
      refused: RefusedCounts): StreamingQuery = {
    val rows = frame.asInstanceOf[Dataset[_]]
    val columns = rows.queryExecution.analyzed.output
    val topic = Option(options.get(KafkaSourceProvider.TOPIC_OPTION_KEY))
    KafkaWriter.validateQuery(columns, topic)
    val all = CaseInsensitiveMap(options.asScala.toMap)
    val sink = new KafkaSink(
      topic,
      KafkaSourceProvider.kafkaParamsForProducer(all),
      columns.map(_.name),
      sizes,
      Option(letters).map(RefusedResults(_, largest)),
      refused.counts)
    rows.sparkSession.sessionState.streamingQueryManager.startQuery(
      Some(name),
      None,
      Some(checkpoint),
      rows,
      all.originalMap,
      new ForeachWriterTable[InternalRow](sink, Right(identity[InternalRow])),
      OutputMode.Update(),
      trigger = Trigger.RealTime(intervalMs))
  }
}
