package org.apache.spark.sql.tailrace

import java.{util => ju}
import java.util.Base64

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.json4s.JsonAST.{JArray, JField, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.optimizer.{InlineCTE, ReplaceDeduplicateWithAggregate}
import org.apache.spark.sql.catalyst.plans.logical._
import org.apache.spark.sql.classic.Dataset

/**
 * Examines the plan of a pipeline's function, from its sources to its result: whether each row comes from one record, whether a
 * start after a crash would make the same rows of the same records, and the plan as text to compare with that of an earlier run.
 *
 * It must be the plan before lineage, size limits and the engine's operators are added, which differ between the modes.
 */
object FunctionPlan {

  /**
   * @param result the rows that the function returns
   * @param sources the rows that it was given
   * @param topicColumn the column that names each row's topic; null if there is none
   * @return as JSON what prevents it, the plan as text, and its Python functions
   */
  def examine(result: DataFrame, sources: ju.List[DataFrame], topicColumn: String): String = {
    val begins = sources.asScala.map(analysed).toSeq
    def sourceOf(plan: LogicalPlan): Option[Int] = Some(begins.indexWhere(_.fastEquals(plan))).filter(_ >= 0)
    val plan = analysed(result)
    val inlined = if (plan.exists(_.isInstanceOf[WithCTE])) InlineCTE(alwaysInline = true)(plan) else plan
    val obstacles = new Obstacles(sourceOf)
    obstacles.visit(inlined)
    inlined.output.find(_.name == topicColumn).foreach(obstacles.visitTopic(_, inlined))
    val text = new PlanText(sourceOf)
    val failed = try { text.add(inlined); None } catch { case NonFatal(why) => Some(s"the plan (${why.getClass.getSimpleName})") }
    val names = inlined.output.map(_.name).mkString("\n") // that of a column in a sink's settings
    compact(
      render(
        JObject(
          JField("obstacles", JArray(obstacles.found.toList)),
          JField("text", JString(text.text + names)),
          JField("unstable", JString(text.unstable.orElse(failed).getOrElse(""))),
          JField("functions", JArray(text.functions.map(function).toList)))))
  }

  private def analysed(frame: DataFrame): LogicalPlan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed

  private def function(named: (String, PythonFunction)): JObject = JObject(
    JField("name", JString(named._1)),
    JField("command", JString(Base64.getEncoder.encodeToString(named._2.command.toArray))))

  /** Collects what prevents a pipeline from knowing which of its outputs exist already. */
  private class Obstacles(sourceOf: LogicalPlan => Option[Int]) {
    val found = mutable.ArrayBuffer.empty[JObject]

    /** The columns whose values are others each time, and the function that makes them so. */
    private val varying = mutable.HashMap.empty[ExprId, String]

    /** Look at a plan, its sources first. */
    def visit(plan: LogicalPlan): Unit = if (sourceOf(plan).isEmpty) {
      plan.children.foreach(visit)
      plan.expressions.foreach(_.foreach {
        case subquery: SubqueryExpression => visit(subquery.plan)
        case udf: PythonUDF if !udf.udfDeterministic => add("varying_function", udf.name, "", plan)
        case _ =>
      })
      visitNode(plan)
      passOn(plan)
    }

    def visitTopic(topic: Attribute, plan: LogicalPlan): Unit =
      varying.get(topic.exprId).foreach(add("varying", "topic", _, plan))

    private def visitNode(plan: LogicalPlan): Unit = plan match {
      case Filter(condition, _) => requireSame("filter", condition, plan)
      case Generate(_: PythonUDTF, _, _, _, _, _) => add("operator", "PythonUDTF", "", plan)
      case generate: Generate => requireSame("generator", generate.generator, plan)
      case join: Join => visitJoin(join)
      case sample: Sample if !sample.isStreaming => add("varying", "table", "sample", plan)
      case _: Project | _: Union | _: Expand | _: SubqueryAlias | _: View | _: ResolvedHint | _: EventTimeWatermark |
          _: CollectMetrics =>
      case other if !other.isStreaming =>
      case _: LeafNode => add("foreign_stream", plan.nodeName, "", plan)
      case _ => add("operator", plan.nodeName, "", plan)
    }

    private def visitJoin(join: Join): Unit = {
      join.condition.foreach(requireSame("join", _, join))
      if (join.left.isStreaming && join.right.isStreaming) {
        add("operator", "StreamingSymmetricHashJoin", "", join)
      } else if (join.isStreaming) {
        val table = if (join.left.isStreaming) join.right else join.left
        if (!keepsOrder(table) && !hasOneRowPerKey(table, join)) add("table_order", "", "", join)
      }
    }

    /** Whether a static table has its rows in the same order each time. */
    private def keepsOrder(table: LogicalPlan): Boolean = !table.exists {
      case _: Project | _: Filter | _: Generate | _: Union | _: SubqueryAlias | _: View | _: ResolvedHint => false
      case _: LeafNode => false
      case _ => true
    }

    /** Whether a record matches at most one row of a static table, so that their order does not matter. */
    private def hasOneRowPerKey(table: LogicalPlan, join: Join): Boolean = {
      // Spark knows the unique keys of an aggregate, which its optimizer makes of dropDuplicates.
      val plain = ReplaceDeduplicateWithAggregate(table.transformUp {
        case SubqueryAlias(_, child) => child
        case hint: ResolvedHint => hint.child
      })
      def isFromRecord(value: Expression) = value.references.intersect(table.outputSet).isEmpty
      val keys = ExpressionSet(join.condition.toSeq.flatMap(conjuncts).collect {
        case EqualTo(column: Attribute, value) if table.outputSet.contains(column) && isFromRecord(value) => column
        case EqualTo(value, column: Attribute) if table.outputSet.contains(column) && isFromRecord(value) => column
      })
      val limited = table.exists {
        case _: GlobalLimit | _: LocalLimit | _: Tail | _: Offset => true
        case _ => false
      }
      !limited && plain.distinctKeys.exists(_.subsetOf(keys))
    }

    private def conjuncts(condition: Expression): Seq[Expression] = condition match {
      case And(left, right) => conjuncts(left) ++ conjuncts(right)
      case other => Seq(other)
    }

    private def requireSame(where: String, expression: Expression, plan: LogicalPlan): Unit =
      causeIn(expression).foreach(add("varying", where, _, plan))

    /** Note which columns of a plan's result vary. */
    private def passOn(plan: LogicalPlan): Unit = plan match {
      case union: Union =>
        union.output.zipWithIndex.foreach { case (column, at) =>
          union.children.flatMap(child => varying.get(child.output(at).exprId)).headOption.foreach(varying(column.exprId) = _)
        }
      case expand: Expand =>
        expand.output.zipWithIndex.foreach { case (column, at) =>
          expand.projections.flatMap(row => causeIn(row(at))).headOption.foreach(varying(column.exprId) = _)
        }
      case Deduplicate(keys, child, _) if !child.isStreaming =>
        // It keeps any of the rows with the same key.
        val others = child.output.filterNot(column => keys.exists(_.exprId == column.exprId))
        others.foreach(each => varying(each.exprId) = "dropDuplicates")
      case generate: Generate =>
        causeIn(generate.generator).foreach(cause => generate.generatorOutput.foreach(each => varying(each.exprId) = cause))
      case other =>
        other.expressions.foreach(_.foreach {
          case alias: Alias => causeIn(alias.child).foreach(varying(alias.exprId) = _)
          case _ =>
        })
    }

    /** The name of a function whose result is another one each time, if the value of an expression depends on one. */
    private def causeIn(expression: Expression): Option[String] = expression.collectFirst {
      case column: Attribute if varying.contains(column.exprId) => varying(column.exprId)
      case now @ (_: CurrentTimestampLike | _: CurrentDate | _: CurrentTime | _: LocalTimestamp | _: CurrentBatchTimestamp) =>
        now.prettyName
      case subquery: SubqueryExpression if subquery.plan.output.exists(column => varying.contains(column.exprId)) =>
        subquery.plan.output.flatMap(column => varying.get(column.exprId)).head
      case udf: PythonUDF if !udf.udfDeterministic => udf.name
      case function if !function.deterministic && function.children.forall(_.deterministic) => function.prettyName
    }

    private def add(kind: String, name: String, cause: String, plan: LogicalPlan): Unit = {
      val origins = plan.origin +: plan.expressions.flatMap(_.collect { case each => each.origin })
      val (call, line) = origins.flatMap(_.pysparkErrorContext).headOption.getOrElse(("", ""))
      found += JObject(
        JField("kind", JString(kind)),
        JField("name", JString(name)),
        JField("cause", JString(cause)),
        JField("call", JString(call)),
        JField("line", JString(line)))
    }
  }
}
