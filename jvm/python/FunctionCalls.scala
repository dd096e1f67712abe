package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression, PythonUDF}
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** One call of a Python function on columns, or of a chain of functions such as `f(g(x))`. */
private[tailrace] case class FunctionCall(
    name: String,
    functions: Seq[PythonFunction],
    arguments: Seq[(Int, Option[String])],
    id: Long,
    dataType: DataType) {

  def spec: ju.Map[String, Any] = Map[String, Any](
    "name" -> name,
    "commands" -> functions.map(_.command.toArray).asJava,
    "args" -> arguments.collect { case (input, None) => input }.asJava,
    "kwargs" -> arguments.collect { case (input, Some(key)) => key -> input }.toMap.asJava,
    "id" -> id).asJava
}

/** The function calls of one operator, their distinct inputs, and the origin of a row's record if it is known. */
private[tailrace] case class FunctionCalls(calls: Seq[FunctionCall], inputs: Seq[Expression], origin: Option[RecordOrigin]) {

  def schema: StructType =
    StructType(inputs.zipWithIndex.map { case (input, index) => StructField(s"_$index", input.dataType) })
}

private[tailrace] object FunctionCalls {

  def of(udfs: Seq[PythonUDF]): FunctionCalls = {
    val inputs = new mutable.ArrayBuffer[Expression]
    var origin: Option[RecordOrigin] = None

    def inputOf(argument: Expression): Int = inputs.indexWhere(_.semanticEquals(argument)) match {
      case -1 =>
        inputs += argument
        inputs.length - 1
      case index => index
    }

    def callOf(udf: PythonUDF): FunctionCall = udf.children match {
      case Seq(inner: PythonUDF) =>
        val innerCall = callOf(inner)
        innerCall.copy(
          name = s"${udf.name}(${innerCall.name})",
          functions = innerCall.functions :+ udf.func,
          id = udf.resultId.id,
          dataType = udf.dataType)
      case children =>
        origin = origin.orElse(children.collectFirst { case known: RecordOrigin => known })
        val arguments = children.filterNot(_.isInstanceOf[RecordOrigin]).map {
          case NamedArgumentExpression(key, value) => inputOf(value) -> Some(key)
          case value => inputOf(value) -> None
        }
        FunctionCall(udf.name, Seq(udf.func), arguments, udf.resultId.id, udf.dataType)
    }

    val calls = udfs.map(callOf)
    FunctionCalls(calls, inputs.toSeq, origin)
  }
}
