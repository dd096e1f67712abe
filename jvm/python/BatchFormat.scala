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

/** The format of the batches that functions of an eval type take. */
private[tailrace] case class BatchFormat(
    operator: PythonOperator,
    evalType: Int,
    inputs: Seq[Expression],
    schema: StructType) {

  /** How rows go to Python, for people. */
  def path: String = if (plain) "plain columns" else "Arrow batches"

  /** The part of a function spec that describes batches. */
  def spec: Map[String, Any] = Map("kind" -> evalType, "plain" -> plain, "schema" -> arrowSchema)

  /**
   * @param results the types of the results
   * @param check throws an exception if the schema of an Arrow reply is wrong
   */
  def codec(results: Seq[DataType], check: StructType => Unit, context: TaskContext): BatchCodec =
    new BatchCodec(schema, results, plain, operator.timeZone, operator.largeTypes, check, context)

  /**
   * Whether batches may be plain columns. A batch with a null number falls back to Arrow, which evaluates the inputs again, so
   * these must be deterministic. A frame with duplicate column names goes through Arrow, too.
   */
  private def plain: Boolean =
    BatchFormat.PlainEvalTypes(evalType) && inputs.forall(_.deterministic) && PlainColumns.supports(schema) &&
      schema.names.distinct.length == schema.length

  private def arrowSchema: Array[Byte] = {
    val out = new ByteArrayOutputStream
    MessageSerializer.serialize(
      new WriteChannel(Channels.newChannel(out)),
      ArrowUtils.toArrowSchema(schema, operator.timeZone, operator.largeTypes))
    out.toByteArray
  }
}

private[tailrace] object BatchFormat {

  /** The schema for functions without arguments: one column that carries the row count. */
  val RowCountSchema: StructType = StructType(Seq(StructField("_0", IntegerType)))

  /** The eval types that take plain columns. The functions of the others work on Arrow data. */
  private val PlainEvalTypes = Set(
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    PythonEvalType.SQL_MAP_PANDAS_ITER_UDF)
}
