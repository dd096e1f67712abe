package org.apache.spark.sql.tailrace

import java.{util => ju}

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.expressions.{Alias, Literal}
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, Project}
import org.apache.spark.sql.catalyst.streaming.StreamingRelationV2
import org.apache.spark.sql.catalyst.trees.CurrentOrigin
import org.apache.spark.sql.classic.Dataset
import org.apache.spark.sql.types.IntegerType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * Makes each use of a source in a pipeline's function a read of its own.
 *
 * Spark reads a source that is used twice with one stream in micro-batch, and refuses it in real time, where two readers would
 * end a batch at different offsets. A checkpoint has the offsets of each stream, so both modes need the same number of streams.
 */
object SourceReads {

  /** The option that numbers the reads of a source. Kafka's source ignores it; to Spark, relations with other options differ. */
  private val Number = "tailraceRead"

  /** The distance between the numbers of a source's reads in the names of outputs; more than a pipeline has sources. */
  private val ReadStep = 1 << 16

  /** How often a plan reads the source of a check. */
  def count(frame: DataFrame, check: RecordCheck): Int =
    reads(Lineage.inlined(analyzed(frame))).count(_ eq check)

  /** Return the same rows. Every use of a source after its first one has another stream, which reports no record again. */
  def separate(frame: DataFrame): DataFrame = {
    val session = frame.asInstanceOf[Dataset[_]].sparkSession
    Dataset.ofRows(session, new Separation().of(Lineage.inlined(analyzed(frame))))
  }

  private def analyzed(frame: DataFrame): LogicalPlan = frame.asInstanceOf[Dataset[_]].queryExecution.analyzed

  private def reads(plan: LogicalPlan): Seq[RecordCheck] = readOf(plan).map(Seq(_)).getOrElse(plan.children.flatMap(reads))

  /** The check of a source's records, if a node is the last one of a read, which the user's operators are above. */
  private def readOf(node: LogicalPlan): Option[RecordCheck] = node match {
    case project: Project if project.output.exists(_.name == Records.Record) =>
      project.collectFirst { case below if checkOf(below).isDefined => checkOf(below).get }
    case _ => None
  }

  private def checkOf(node: LogicalPlan): Option[RecordCheck] =
    node.expressions.flatMap(_.collect { case Literal(check: RecordCheck, _) => check }).headOption

  private class Separation {
    private val uses = new ju.IdentityHashMap[RecordCheck, Int]

    def of(node: LogicalPlan): LogicalPlan = readOf(node) match {
      case Some(check) =>
        val earlier = uses.merge(check, 1, _ + _) - 1
        if (earlier == 0) node else CurrentOrigin.withOrigin(node.origin)(readAgain(node, earlier))
      case None => node.mapChildren(of)
    }

    private def readAgain(read: LogicalPlan, number: Int): LogicalPlan = read.transform {
      case relation: StreamingRelationV2 => relation.copy(extraOptions = numbered(relation.extraOptions, number))
      case project: Project =>
        project.transformExpressions {
          case Literal(check: RecordCheck, kind) => Literal(check.repeated, kind)
          case column @ Alias(Literal(source: Int, IntegerType), Lineage.Source) =>
            column.withNewChildren(Seq(Literal(source + number * ReadStep)))
        }
    }

    private def numbered(options: CaseInsensitiveStringMap, number: Int): CaseInsensitiveStringMap = {
      val all = new ju.HashMap[String, String](options.asCaseSensitiveMap())
      all.put(Number, number.toString)
      new CaseInsensitiveStringMap(all)
    }
  }
}
