package org.apache.spark.sql.tailrace

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, Coalesce, Expression, IsNotNull, IsNull, Literal, NamedExpression, PythonUDF}
import org.apache.spark.sql.catalyst.expressions.aggregate.{AggregateExpression, Last}
import org.apache.spark.sql.catalyst.expressions.objects.{Invoke, StaticInvoke}
import org.apache.spark.sql.catalyst.optimizer.InlineCTE
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.catalyst.trees.CurrentOrigin
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.execution.python.tailrace.RecordOrigin
import org.apache.spark.sql.types._

/**
 * Carries a record's coordinates through the user's plan.
 *
 * The source's frame has hidden columns. The user's function gets a Project without them, so it can neither use nor drop
 * them. Afterwards the analysed plan is rewritten so that every operator passes them on.
 */
object Lineage {
  private[tailrace] val HeadersType =
    ArrayType(StructType(Seq(StructField("key", StringType), StructField("value", BinaryType))))

  val Topic = "__tailrace_topic"
  val Partition = "__tailrace_partition"
  val Offset = "__tailrace_offset"
  val EventTime = "__tailrace_event_time"

  /** The number of the source in the pipeline, which may read one topic twice. */
  val Source = "__tailrace_source"

  /** The original record. The column exists only if a Python function may write the record as a dead letter. */
  val Raw = "__tailrace_raw"

  private[sql] val RawType = StructType(
    Seq(StructField("value", BinaryType), StructField("key", BinaryType), StructField("headers", HeadersType)))

  private val Types: Seq[(String, DataType)] =
    Seq(
      Topic -> StringType,
      Partition -> IntegerType,
      Offset -> LongType,
      EventTime -> TimestampType,
      Source -> IntegerType,
      Raw -> RawType)
  private val Names: Set[String] = Types.map(_._1).toSet

  /**
   * Return the same rows with the hidden columns that reach the end of the plan, after the user's columns.
   *
   * @param python whether the engine runs the Python functions, so that they get the origin of each row
   */
  def carry(frame: DataFrame, python: Boolean): DataFrame = {
    val analysed = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    val rewritten = new PlanRewriter(python).rewrite(inlined(analysed))
    Dataset.ofRows(frame.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession], rewritten)
  }

  /** The same plan with each common table expression where it is used. */
  private[tailrace] def inlined(analysed: LogicalPlan): LogicalPlan =
    if (analysed.exists(_.isInstanceOf[WithCTE])) InlineCTE(alwaysInline = true)(analysed) else analysed

  /** Whether a column is hidden from the user. */
  private[sql] def isHidden(name: String): Boolean = Names(name)

  /**
   * Add a column of Kafka headers: the user's own headers, then those of the hidden columns.
   *
   * The hidden columns stay. [[SizeCheck]] comes last and drops them. If the outputs of each record can be counted, they get
   * names, and those that exist already are dropped.
   *
   * @param topic the sink's topic; null if each row names its own
   */
  def withHeaders(frame: DataFrame, into: String, own: String, topic: String): DataFrame = {
    val plan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed
    val ownHeaders =
      if (own == null) Literal(null, HeadersType) else plan.output.find(_.name == own).getOrElse(Literal(null, HeadersType))
    val isNamed = namesOutputs(plan)
    val headers = if (isNamed) named(plan, ownHeaders, topic) else unnamed(plan, ownHeaders)
    val all = Project(plan.output.filterNot(_.name == own) :+ Alias(headers, into)(), plan)
    Dataset.ofRows(
      frame.sparkSession.asInstanceOf[org.apache.spark.sql.classic.SparkSession],
      if (isNamed) Filter(IsNotNull(all.output.last), all) else all)
  }

  private def unnamed(plan: LogicalPlan, own: Expression): Expression = StaticInvoke(
    classOf[LineageHeaders],
    HeadersType,
    "of",
    (own +: originArguments(plan)) :+ Literal(null, BinaryType),
    propagateNull = false)

  /** Nondeterministic, so that the optimizer neither moves nor repeats it: it counts. */
  private def named(plan: LogicalPlan, own: Expression, topic: String): Expression = Invoke(
    Literal.create(OutputHeaders(topic), ObjectType(classOf[OutputHeaders])),
    "of",
    HeadersType,
    (own +: originArguments(plan)) ++ Seq(orZero(plan, Source, IntegerType), column(plan, "topic", StringType)),
    propagateNull = false,
    returnNullable = true,
    isDeterministic = false)

  /** The arguments about a record's origin, which [[LineageHeaders]] and [[OutputHeaders]] both take. */
  private def originArguments(plan: LogicalPlan): Seq[Expression] = Seq(
    column(plan, Topic, StringType),
    orZero(plan, Partition, IntegerType),
    orZero(plan, Offset, LongType),
    IsNull(column(plan, EventTime, TimestampType)),
    orZero(plan, EventTime, TimestampType))

  private def column(plan: LogicalPlan, name: String, dataType: DataType): Expression =
    plan.output.find(_.name == name).getOrElse(Literal(null, dataType))

  /** For a null in a numeric argument, Spark would return null without a call. */
  private def orZero(plan: LogicalPlan, name: String, dataType: DataType): Expression =
    Coalesce(Seq(column(plan, name, dataType), Literal.default(dataType)))

  /**
   * Whether the outputs of each record come one after the other from the task that has read it, with its coordinates.
   *
   * A shuffle sends them to several tasks.
   */
  private def namesOutputs(plan: LogicalPlan): Boolean =
    Seq(Topic, Partition, Offset, Source).forall(name => plan.output.exists(_.name == name)) && !plan.exists(shuffles)

  private def shuffles(node: LogicalPlan): Boolean = node match {
    case _: RepartitionOperation | _: RebalancePartitions | _: Deduplicate | _: DeduplicateWithinWatermark | _: Sort => true
    case join: Join => join.left.isStreaming && join.right.isStreaming
    case _ => false
  }

  /** The hidden columns of a plan's output. A join of two streams has each name twice: the first counts. */
  private def hidden(plan: LogicalPlan): Seq[Attribute] =
    Types.flatMap { case (name, _) => plan.output.find(_.name == name) }

  /** The origin of a row with these columns, if the topic is among them. */
  private def originOf(columns: Seq[Attribute]): Option[RecordOrigin] = {
    val known = Types.flatMap { case (name, _) => columns.find(_.name == name) }
    if (known.exists(_.name == Topic)) Some(RecordOrigin(known, known.map(_.name))) else None
  }

  private class PlanRewriter(python: Boolean) {
    def rewrite(node: LogicalPlan): LogicalPlan = {
      val children = node.children.map(rewrite)
      val isUnchanged = children.zip(node.children).forall { case (after, before) => after.fastEquals(before) }
      if (isUnchanged && !children.exists(hidden(_).nonEmpty)) {
        node
      } else {
        // A node that replaces another keeps the user's line.
        CurrentOrigin.withOrigin(node.origin)(carryThrough(addOrigins(node, children), children))
      }
    }

    private def carryThrough(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = node match {
      case project: Project => carryThroughProject(project, children.head)
      case aggregate: Aggregate => carryEventTime(aggregate, children.head)
      case Distinct(child) =>
        // Rewritten as Spark's optimizer would do it later: a Distinct over more columns would be another query.
        carryEventTime(Aggregate(child.output, child.output, child), children.head)
      case union: Union => carryThroughUnion(union, children)
      // The engine keeps the hidden columns from the functions that it calls; a Project below hides them from others.
      case MapInPandas(function: PythonUDF, output, _, false, None) if hasOrigin(children.head) =>
        MapInPandas(withOrigin(function, children.head), output, children.head, isBarrier = false, None)
      case MapInArrow(function: PythonUDF, output, _, false, None) if hasOrigin(children.head) =>
        MapInArrow(withOrigin(function, children.head), output, children.head, isBarrier = false, None)
      case expand: Expand =>
        val columns = hidden(children.head)
        expand.copy(
          projections = expand.projections.map(_ ++ columns),
          output = expand.output ++ columns,
          child = children.head)
      case deduplicate: Deduplicate =>
        carryIfPassedOn(deduplicate.copy(dedupSpec = withNamedKeys(deduplicate.dedupSpec, deduplicate.child)), children)
      case deduplicate: DeduplicateWithinWatermark =>
        carryIfPassedOn(deduplicate.copy(dedupSpec = withNamedKeys(deduplicate.dedupSpec, deduplicate.child)), children)
      case other => carryIfPassedOn(other, children)
    }

    /** Add the origin of a row as a last argument to functions on columns. The engine removes it before the call. */
    private def addOrigins(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = node match {
      case _ if !python => node
      case aggregate: Aggregate => addOriginsBelow(aggregate, addingOrigin(children))
      case _ => node.transformExpressions(addingOrigin(children))
    }

    private def addingOrigin(children: Seq[LogicalPlan]): PartialFunction[Expression, Expression] = {
      case udf: PythonUDF if PythonUDF.isScalarPythonUDF(udf) && !hasOriginArgument(udf) =>
        children.find(child => udf.references.subsetOf(child.outputSet)).map(withOrigin(udf, _)).getOrElse(udf)
    }

    /** Add it only to functions below the aggregate; a function on the result of an aggregate has no record. */
    private def addOriginsBelow(aggregate: Aggregate, add: PartialFunction[Expression, Expression]): Aggregate = {
      def rewritten(result: Expression): Expression =
        if (result.isInstanceOf[AggregateExpression] || aggregate.groupingExpressions.exists(_.semanticEquals(result))) {
          result.transform(add)
        } else {
          result.mapChildren(rewritten)
        }
      aggregate.copy(
        groupingExpressions = aggregate.groupingExpressions.map(_.transform(add)),
        aggregateExpressions = aggregate.aggregateExpressions.map(rewritten(_).asInstanceOf[NamedExpression]))
    }

    private def hasOrigin(child: LogicalPlan): Boolean = python && originOf(child.output).isDefined

    private def withOrigin(udf: PythonUDF, child: LogicalPlan): PythonUDF =
      udf.copy(children = udf.children ++ originOf(child.output))

    /** Whether a function has the argument already; in a chain such as `f(g(x))` only the inner function has it. */
    private def hasOriginArgument(udf: PythonUDF): Boolean = udf.children match {
      case Seq(inner: PythonUDF) => inner.evalType == udf.evalType
      case arguments => arguments.exists(_.isInstanceOf[RecordOrigin])
    }

    private def carryThroughProject(project: Project, child: LogicalPlan): LogicalPlan = {
      val present = project.projectList.map(_.name).toSet
      val missing = hidden(child).filterNot(attribute => present(attribute.name))
      project.copy(projectList = project.projectList ++ missing, child = child)
    }

    /** Coordinates end at an aggregate. The event time of the record that caused an update passes on. */
    private def carryEventTime(aggregate: Aggregate, child: LogicalPlan): LogicalPlan =
      hidden(child).find(_.name == EventTime) match {
        case Some(eventTime) =>
          val last = Alias(Last(eventTime, ignoreNulls = true).toAggregateExpression(), EventTime)()
          aggregate.copy(aggregateExpressions = aggregate.aggregateExpressions :+ last, child = child)
        case None => aggregate.withNewChildren(Seq(child))
      }

    /** Name the keys: Spark resolves "all columns" again at the start, and must not use the hidden ones. */
    private def withNamedKeys(spec: Option[DeduplicateSpec], child: LogicalPlan): Option[DeduplicateSpec] = spec.map {
      case all @ DeduplicateSpec(DeduplicateAllColumnsAsKey, _) =>
        all.copy(keySpec = DeduplicateKeyColumns(child.output.map(_.name)))
      case named => named
    }

    /** A union matches columns by position, so every side gets all hidden columns, null if it has none. */
    private def carryThroughUnion(union: Union, children: Seq[LogicalPlan]): LogicalPlan = {
      val sides = children.zip(union.children).map { case (after, before) =>
        val byName = hidden(after).map(attribute => attribute.name -> attribute).toMap
        val columns: Seq[NamedExpression] = Types.map { case (name, dataType) =>
          byName.getOrElse(name, Alias(Literal(null, dataType), name)())
        }
        Project(before.output ++ columns, after)
      }
      union.copy(children = sides)
    }

    /**
     * Most operators pass their child's columns on. An operator on whole rows (a Python function over partitions, a typed
     * map) must not see the hidden columns, so they end below it.
     */
    private def carryIfPassedOn(node: LogicalPlan, children: Seq[LogicalPlan]): LogicalPlan = {
      val passedOn = node match {
        case _: SetOperation => None
        case _ =>
          val rewritten = node.withNewChildren(children)
          if (hidden(rewritten).nonEmpty) Some(rewritten) else None
      }
      passedOn match {
        case Some(rewritten) =>
          val output = node.output ++ hidden(rewritten)
          if (rewritten.output.map(_.exprId) == output.map(_.exprId)) rewritten else Project(output, rewritten)
        case None =>
          node.withNewChildren(children.zip(node.children).map { case (after, before) =>
            if (hidden(after).isEmpty) after else Project(before.output, after)
          })
      }
    }
  }
}
