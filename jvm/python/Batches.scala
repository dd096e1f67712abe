package org.apache.spark.sql.execution.python.tailrace

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels

import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.TaskContext
import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.expressions.Expression
import org.apache.spark.sql.types.{DataType, IntegerType, StructField, StructType}
import org.apache.spark.sql.util.ArrowUtils

/** The batches that functions of a kind take. */
private[tailrace] case class Batches(facts: Facts, evalType: Int, inputs: Seq[Expression], schema: StructType) {

  /** How rows go to Python, in words. */
  def path: String = if (plain) "plain columns" else "Arrow batches"

  /** What Python has to know of them. */
  def told: Map[String, Any] = Map("kind" -> evalType, "plain" -> plain, "schema" -> kind)

  /**
   * @param results the types of what functions make
   * @param check requires that of what comes back in Arrow
   */
  def messages(results: Seq[DataType], check: StructType => Unit, context: TaskContext): Messages =
    new BatchMessages(schema, results, plain, facts.timeZone, facts.largeTypes, check, context)

  /**
   * Whether they may be plain columns. What is not deterministic cannot be asked again where they turn out not to be, and two
   * columns of one name are none of a frame.
   */
  private def plain: Boolean =
    Batches.Plain(evalType) && inputs.forall(_.deterministic) && PlainColumns.canBe(schema) &&
      schema.names.distinct.length == schema.length

  private def kind: Array[Byte] = {
    val out = new ByteArrayOutputStream
    MessageSerializer.serialize(
      new WriteChannel(Channels.newChannel(out)), ArrowUtils.toArrowSchema(schema, facts.timeZone, facts.largeTypes))
    out.toByteArray
  }
}

private[tailrace] object Batches {

  /** Something to count rows by, where a function takes nothing. */
  val Nothing: StructType = StructType(Seq(StructField("_0", IntegerType)))

  /** The kinds of functions that take plain columns; the others are about Arrow. */
  private val Plain = Set(
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF)
}
