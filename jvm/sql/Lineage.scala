package org.apache.spark.sql.tailrace

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Coalesce, Expression, IsNull, Literal, NamedExpression, PythonUDF}
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, Last}
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.optimizer.InlineCTE
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.CurrentOrigin
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.python.tailrace.Origin
import org.apache.spark.sql.types._

/**
 * Carries a record's coordinates through the user's plan.
 *
 * The source's frame has four columns more than the user sees. They are hidden by the Project that the user's function
 * gets, so nothing in that function can name, select or lose them. Afterwards this rewrites the analysed plan so
 * that every operator hands them on.
 */
object Lineage {
  private[tailrace] val HeadersType =
    ArrayType(StructType(Seq(StructField("key", StringType), StructField("value", BinaryType))))

  val Topic = "__tailrace_topic"
  val Partition = "__tailrace_partition"
  val Offset = "__tailrace_offset"
  val EventTime = "__tailrace_event_time"

  /** The record as it was in its topic; only where a Python function may make a dead letter of it. */
  val Raw = "__tailrace_raw"

  private[sql] val RawType = StructType(
    Seq(StructField("value", BinaryType), StructField("key", BinaryType), StructField("headers", HeadersType)))

  private val Types: Seq[(String, DataType)] =
    Seq(Topic -> StringType, Partition -> IntegerType, Offset -> LongType, EventTime -> TimestampType, Raw -> RawType)
  private val Names: Set[String] = Types.map(_._1).toSet

  /**
   * The same rows with as many of the hidden columns as can be carried to the end, after the user's own.
   *
   * @param python whether Python functions are the engine's: they are then told of the record that a row came from
   */
  def carry(frame: DataFrame, python: Boolean): DataFrame = {
    val analysed = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    val inlined = if (analysed.exists(_.isInstanceOf[WithCTE])) InlineCTE(alwaysInline = true)(analysed) else analysed
    val carried = new Carrying(python).rewrite(inlined)
    Dataset.ofRows(frame.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession], carried)
  }

  /** Whether a column is one of those that the user does not see. */
  private[tailrace] def isHidden(name: String): Boolean = Names(name)

  /**
   * The frame with a column of Kafka headers made of the hidden columns and, before them, the user's own headers.
   *
   * The hidden columns stay; [[SizeCheck]], which comes last, drops them.
   */
  def withHeaders(frame: DataFrame, into: String, own: String): DataFrame = {
    val plan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    val found = hidden(plan).map(attribute => attribute.name -> attribute).toMap
    def column(name: String, otherwise: DataType) = found.getOrElse(name, Literal(null, otherwise))
    val eventTime = column(EventTime, TimestampType)
    val ownHeaders =
      if (own == null) Literal(null, HeadersType) else plan.output.find(_.name == own).getOrElse(Literal(null, HeadersType))
    val headers = StaticInvoke(
      classOf[LineageHeaders],
      HeadersType,
      "of",
      Seq(
        ownHeaders,
        column(Topic, StringType),
        // A null where the method takes a number would make Spark return null without calling it.
        Coalesce(Seq(column(Partition, IntegerType), Literal(0))),
        Coalesce(Seq(column(Offset, LongType), Literal(0L))),
        IsNull(eventTime),
        Coalesce(Seq(eventTime, Literal(0L, TimestampType)))),
      propagateNull = false)
    val all = plan.output.filterNot(_.name == own) :+ Alias(headers, into)()
    Dataset.ofRows(frame.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession], Project(all, plan))
  }

  /** The hidden columns of a plan's output; of two with one name, as a join of two streams has, the first. */
  private def hidden(plan: LogicalPlan): Seq[Attribute] =
    Types.flatMap { case (name, _) => plan.output.find(_.name == name) }

  /** The record that a row of these columns came from. */
  private def originOf(columns: Seq[Attribute]): Option[Origin] = {
    val known = Types.flatMap { case (name, _) => columns.find(_.name == name) }
    if (known.exists(_.name == Topic)) Some(Origin(known, known.map(_.name))) else None
  }

  private class Carrying(python: Boolean) {
    def rewrite(node: LogicalPlan): LogicalPlan = {
      val children = node.children.map(rewrite)
      val untouched = children.zip(node.children).forall { case (now, before) => now.fastEquals(before) }
      if (untouched && !children.exists(hidden(_).nonEmpty)) {
        node
      } else {
        // What takes a node's place has its line.
        CurrentOrigin.withOrigin(node.origin)(carrying(tellFunctions(node, children), children))
      }
    }

    private def carrying(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = node match {
      case project: Project => carryThrough(project, children.head)
      case aggregate: Aggregate => carryEventTime(aggregate, children.head)
      case Distinct(child) =>
        // As Spark's optimizer would plan it, only earlier: a Distinct of more columns would be another query.
        carryEventTime(Aggregate(child.output, child.output, child), children.head)
      case union: Union => carryBeside(union, children)
      // Those that the engine calls, which keeps the hidden columns from them; from others they are hidden here.
      case MapInPandas(function: PythonUDF, output, _, false, None) if isKnown(children.head) =>
        MapInPandas(told(function, children.head), output, children.head, isBarrier = false, None)
      case MapInArrow(function: PythonUDF, output, _, false, None) if isKnown(children.head) =>
        MapInArrow(told(function, children.head), output, children.head, isBarrier = false, None)
      case expand: Expand =>
        val carried = hidden(children.head)
        expand.copy(
          projections = expand.projections.map(_ ++ carried),
          output = expand.output ++ carried,
          child = children.head)
      case deduplicate: Deduplicate =>
        carryWhereTheyPass(deduplicate.copy(dedupSpec = byName(deduplicate.dedupSpec, deduplicate.child)), children)
      case deduplicate: DeduplicateWithinWatermark =>
        carryWhereTheyPass(deduplicate.copy(dedupSpec = byName(deduplicate.dedupSpec, deduplicate.child)), children)
      case other => carryWhereTheyPass(other, children)
    }

    /** Functions on columns get the record of their row as one more argument, which the engine keeps for itself. */
    private def tellFunctions(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = node match {
      case _ if !python => node
      case aggregate: Aggregate => tellBelow(aggregate, telling(children))
      case _ => node.transformExpressions(telling(children))
    }

    private def telling(children: Seq[LogicalPlan]): PartialFunction[Expression, Expression] = {
      case udf: PythonUDF if PythonUDF.isScalarPythonUDF(udf) && !isTold(udf) =>
        children.find(child => udf.references.subsetOf(child.outputSet)).map(told(udf, _)).getOrElse(udf)
    }

    /** Of an aggregate those functions that it takes rows from; what is called with its results is about no record. */
    private def tellBelow(aggregate: Aggregate, tell: PartialFunction[Expression, Expression]): Aggregate = {
      def told(result: Expression): Expression =
        if (result.isInstanceOf[AggregateExpression] || aggregate.groupingExpressions.exists(_.semanticEquals(result))) {
          result.transform(tell)
        } else {
          result.mapChildren(told)
        }
      aggregate.copy(
        groupingExpressions = aggregate.groupingExpressions.map(_.transform(tell)),
        aggregateExpressions = aggregate.aggregateExpressions.map(told(_).asInstanceOf[NamedExpression]))
    }

    private def isKnown(child: LogicalPlan): Boolean = python && originOf(child.output).isDefined

    private def told(udf: PythonUDF, child: LogicalPlan): PythonUDF =
      udf.copy(children = udf.children ++ originOf(child.output))

    /** One that takes nothing but another's result is called with that one, which is told already. */
    private def isTold(udf: PythonUDF): Boolean = udf.children match {
      case Seq(inner: PythonUDF) => inner.evalType == udf.evalType
      case arguments => arguments.exists(_.isInstanceOf[Origin])
    }

    private def carryThrough(project: Project, child: LogicalPlan): LogicalPlan = {
      val already = project.projectList.map(_.name).toSet
      val missing = hidden(child).filterNot(attribute => already(attribute.name))
      project.copy(projectList = project.projectList ++ missing, child = child)
    }

    /** Coordinates end at an aggregate; the event time of the record that caused an update goes on. */
    private def carryEventTime(aggregate: Aggregate, child: LogicalPlan): LogicalPlan =
      hidden(child).find(_.name == EventTime) match {
        case Some(eventTime) =>
          val last = Alias(Last(eventTime, ignoreNulls = true).toAggregateExpression(), EventTime)()
          aggregate.copy(aggregateExpressions = aggregate.aggregateExpressions :+ last, child = child)
        case None => aggregate.withNewChildren(Seq(child))
      }

    /** A stream computes its keys anew when it starts: "all columns" must mean those that the user saw. */
    private def byName(spec: Option[DeduplicateSpec], child: LogicalPlan): Option[DeduplicateSpec] = spec.map {
      case all @ DeduplicateSpec(DeduplicateAllColumnsAsKey, _) =>
        all.copy(keySpec = DeduplicateKeyColumns(child.output.map(_.name)))
      case named => named
    }

    /** A union goes by position: every side gets the same hidden columns, null where it has none. */
    private def carryBeside(union: Union, children: Seq[LogicalPlan]): LogicalPlan = {
      val sides = children.zip(union.children).map { case (now, before) =>
        val found = hidden(now).map(attribute => attribute.name -> attribute).toMap
        val columns: Seq[NamedExpression] = Types.map { case (name, kind) =>
          found.getOrElse(name, Alias(Literal(null, kind), name)())
        }
        Project(before.output ++ columns, now)
      }
      union.copy(children = sides)
    }

    /**
     * Most operators hand on what their child gives. One that takes whole rows instead (a Python function over
     * partitions, a typed map) must not see the hidden columns, and they end there.
     */
    private def carryWhereTheyPass(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = {
      val passing = node match {
        case _: SetOperation => None
        case _ =>
          val moved = node.withNewChildren(children)
          if (hidden(moved).nonEmpty) Some(moved) else None
      }
      passing match {
        case Some(moved) =>
          val wanted = node.output ++ hidden(moved)
          if (moved.output.map(_.exprId) == wanted.map(_.exprId)) moved else Project(wanted, moved)
        case None =>
          node.withNewChildren(children.zip(node.children).map { case (now, before) =>
            if (hidden(now).isEmpty) now else Project(before.output, now)
          })
      }
    }
  }
}
