package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, UnsafeProjection}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.kafka010.tailrace.TaskProgress
import org.apache.spark.sql.tailrace.Lineage
import org.apache.spark.sql.types.{DataType, StructType}

/** `mapInPandas` and `mapInArrow`: the function returns any number of rows for each input row. */
private[sql] class MapFunction(
    operator: PythonOperator,
    function: PythonFunction,
    name: String,
    outputType: DataType,
    evalType: Int,
    override protected val origin: Option[RecordOrigin])
    extends PythonFunctions(operator) {

  override def names: Seq[String] = Seq(name)

  override def path: String = format.path

  override protected def takesIterator: Boolean = true

  override protected def maxInFlight: Int = 20 * PythonFunctions.MaxBatchRows

  /** The user's columns, without those of the record's origin; the optimizer may have made one of these a constant. */
  override protected val inputs: Seq[Attribute] =
    operator.input.filterNot(column => origin.isDefined && Lineage.isHidden(column.name))

  private def format = BatchFormat(operator, evalType, inputs, DataTypeUtils.fromAttributes(inputs))

  override protected def command(retries: Int): ChainedPythonFunctions = commandOf(
    format.spec ++ Map(
      "call_with" -> "frames",
      "alone" -> retries,
      "functions" -> Seq(FunctionCall(name, Seq(function), Seq((0, None)), 0L, outputType).spec).asJava),
    Seq(function))

  override protected def codec(context: TaskContext): MessageCodec =
    format.codec(operator.output.map(_.dataType), requireDeclaredType, context)

  override protected def results(pending: PendingRows, context: TaskContext, codec: MessageCodec): Iterator[InternalRow] = {
    val output = UnsafeProjection.create(operator.output, operator.output)
    val failures = new FailureHandler
    TaskProgress.of(context).block() // the function does not say which rows a result comes from
    replies(pending, context, codec, failures).flatMap { reply =>
      reply.failures.foreach { case (index, failure) =>
        val row = pending.inFlightAt(index).getOrElse(throw new IllegalStateException(failure))
        failures.handle(Failure.read(failure), row)
      }
      complete(pending, reply.completed, reply.pythonNs)
      Iterator.range(0, reply.size).map(index => output(reply.result(index)): InternalRow)
    }
  }

  private def requireDeclaredType(actual: StructType): Unit =
    if (SQLConf.get.pysparkArrowValidateSchema && !DataType.equalsIgnoreCompatibleNullability(from = actual, to = outputType)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError(PythonEvalType.toString(evalType), Seq(outputType), Seq(actual))
    }
}
