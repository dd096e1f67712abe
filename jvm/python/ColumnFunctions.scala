package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Expression, JoinedRow, Literal, UnsafeProjection}
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.types.{DataType, StructType, UserDefinedType}

/** Functions on columns: each row is joined with its result, in order. */
private[sql] abstract class ColumnFunctions(operator: PythonOperator, calls: FunctionCalls) extends PythonFunctions(operator) {
  override def names: Seq[String] = calls.calls.map(_.name)

  override protected def origin: Option[RecordOrigin] = calls.origin

  override protected def inputs: Seq[Expression] = calls.inputs

  protected def functions: Seq[PythonFunction] = calls.calls.flatMap(_.functions)

  protected def spec: Map[String, Any] = Map(
    "functions" -> calls.calls.map(_.spec).asJava,
    "inputs" -> calls.inputs.map(_.dataType.json).asJava)

  override protected def results(pending: PendingRows, context: TaskContext, codec: MessageCodec): Iterator[InternalRow] = {
    val joined = new JoinedRow
    val output = UnsafeProjection.create(operator.output, operator.output)
    val failures = new FailureHandler
    val results = replies(pending, context, codec, failures).flatMap { reply =>
      complete(pending, reply.size, reply.pythonNs).iterator.zipWithIndex.flatMap { case (row, index) =>
        pending.begin(row)
        val result = reply.failure(index) match {
          case Some(failure) => Left(failures.handle(Failure.read(failure), row))
          case None => resultOf(reply, index).left.map(failures.handle(_, row))
        }
        result.toOption.map(columns => output(joined(row.row, columns)): InternalRow)
      }
    }
    results ++ {
      require(pending.inFlightAt(0).isEmpty, "a Python worker finished without a result for every row")
      Iterator.empty
    }
  }

  /** Return a result, or why it is not of the declared type: a pickled result is checked only here. */
  private def resultOf(reply: Reply, index: Int): Either[String, InternalRow] =
    try Right(reply.result(index))
    catch { case NonFatal(wrong) => Left(s"its result is not of the declared type: ${wrong.getMessage}") }
}

/** `@udf` without Arrow. */
private[sql] class PickledFunctions(operator: PythonOperator, calls: FunctionCalls, binaryAsBytes: Boolean)
    extends ColumnFunctions(operator, calls) {
  override def path: String = "pickled rows"

  override protected def takesIterator: Boolean = false

  override protected def command(retries: Int): ChainedPythonFunctions = commandOf(spec + ("call_with" -> "rows"), functions)

  override protected def codec(context: TaskContext): MessageCodec = {
    EvaluatePython.registerPicklers()
    new PickledCodec(calls.schema, calls.calls.map(_.dataType), binaryAsBytes)
  }
}

/** `@pandas_udf`, `arrow_udf` and `@udf` with Arrow. Over an iterator, a reply may cover several batches or part of one. */
private[sql] class ArrowFunctions(operator: PythonOperator, calls: FunctionCalls, evalType: Int)
    extends ColumnFunctions(operator, calls) {
  override def path: String = format.path

  override protected def takesIterator: Boolean =
    evalType == PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF || evalType == PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF

  override protected def inputs: Seq[Expression] = if (calls.inputs.isEmpty) Seq(Literal(0)) else calls.inputs

  private def format =
    BatchFormat(operator, evalType, inputs, if (calls.inputs.isEmpty) BatchFormat.RowCountSchema else calls.schema)

  override protected def command(retries: Int): ChainedPythonFunctions = {
    val callWith = if (takesIterator) "stream" else "columns"
    commandOf(spec ++ format.spec + ("call_with" -> callWith) + ("alone" -> retries), functions)
  }

  override protected def codec(context: TaskContext): MessageCodec =
    format.codec(calls.calls.map(_.dataType), requireDeclaredTypes, context)

  private def requireDeclaredTypes(schema: StructType): Unit = {
    val expected = calls.calls.map(_.dataType.transformRecursively { case own: UserDefinedType[_] => own.sqlType })
    val actual = schema.map(_.dataType)
    if (!DataType.equalsIgnoreCompatibleCollation(expected, actual)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError("pandas_udf()", expected, actual)
    }
  }
}
