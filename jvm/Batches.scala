package org.apache.spark.sql.execution.python.tailrace

import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.types.DataType.equalsIgnoreCompatibleCollation
import org.apache.spark.sql.vectorized.ColumnarBatch

/** What comes back from Python must be of the types that the user declared. */
private[tailrace] object Batches {

  def requireTypes(batch: ColumnarBatch, expected: Seq[DataType]): Unit = {
    val actual = (0 until batch.numCols()).map(column => batch.column(column).dataType())
    if (!equalsIgnoreCompatibleCollation(expected, actual)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError("pandas_udf()", expected, actual)
    }
  }

  def requireType(batch: ColumnarBatch, expected: DataType, evalType: Int): Unit = {
    val actual = batch.column(0).dataType()
    if (!DataType.equalsIgnoreCompatibleNullability(from = actual, to = expected)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError(
        PythonEvalType.toString(evalType), Seq(expected), Seq(actual))
    }
  }
}
