package org.apache.spark.sql.tailrace

import java.{util => ju}

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Coalesce, Expression, IsNotNull, Literal}
import org.apache.spark.sql.catalyst.expressions.objects.Invoke
import org.apache.spark.sql.catalyst.plans.logical.{Filter, Project}
import org.apache.spark.sql.classic.{Dataset, SparkSession}
import org.apache.spark.sql.types._

/** Reads a topic's records as columns and counts every record. */
object Records {
  val Record = "__tailrace_record"

  /** The columns of Spark's Kafka source, in the order of the parameters of [[RecordCheck.accept]]. */
  private val SourceColumns = Seq("value", "key", "headers", "topic", "partition", "offset", "timestamp")

  /**
   * Return the good records of a frame read from Kafka, with their content in the column [[Record]] and the source's number.
   *
   * The check is a nondeterministic expression in a Project, so the optimizer neither moves nor repeats it: each record is
   * parsed once, and a bad one becomes a dead letter once.
   */
  def read(raw: DataFrame, check: RecordCheck): DataFrame = {
    val session = raw.sparkSession.asInstanceOf[SparkSession]
    val plan = raw.asInstanceOf[Dataset[_]].queryExecution.analyzed
    val byName = plan.output.map(attribute => attribute.name -> attribute).toMap
    val withoutHeaders = Literal(null, Lineage.HeadersType)
    val arguments: Seq[Expression] = SourceColumns.map(name => byName.getOrElse(name, withoutHeaders)).map { argument =>
      // For a null in a numeric argument, Spark would return null without a call: the record would be lost.
      argument.dataType match {
        case IntegerType => Coalesce(Seq(argument, Literal(0)))
        case LongType => Coalesce(Seq(argument, Literal(0L)))
        case TimestampType => Coalesce(Seq(argument, Literal(0L, TimestampType)))
        case _ => argument
      }
    }
    val call = Invoke(
      Literal.create(check, ObjectType(classOf[RecordCheck])),
      "accept",
      check.content,
      arguments,
      propagateNull = false,
      returnNullable = true,
      isDeterministic = false)
    val checked = Project(Seq(Alias(call, Record)(), Alias(Literal(check.source), Lineage.Source)()) ++ plan.output, plan)
    Dataset.ofRows(session, Filter(IsNotNull(checked.output.head), checked))
  }

  /** Create a check whose counts are registered with the session's context. */
  def check(
      session: SparkSession,
      format: String,
      schemaJson: String,
      jsonOptions: ju.Map[String, String],
      policy: String,
      pipeline: String,
      deadLetterTopic: String,
      producer: ju.Map[String, String],
      source: Int): RecordCheck = {
    val counts = new RecordCounts
    counts.register(session.sparkContext, Some(s"tailrace records of $pipeline"), countFailedValues = true)
    val killed = new KilledTaskCounts(session.sparkContext, counts)
    val schema = DataType.fromJson(schemaJson).asInstanceOf[StructType]
    val deadLetters =
      if (policy == "dead-letter") Some(DeadLetters.of(pipeline, deadLetterTopic, producer)) else None
    RecordCheck(
      format,
      schema,
      jsonOptions.asScala.toMap,
      session.sessionState.conf.sessionLocalTimeZone,
      failing = policy == "fail",
      deadLetters,
      source,
      counts)(killed)
  }
}
