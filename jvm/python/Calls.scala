package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.apache.spark.api.python.PythonFunction
import org.apache.spark.sql.catalyst.expressions.{Expression, NamedArgumentExpression, PythonUDF}
import org.apache.spark.sql.types.{DataType, StructField, StructType}

/** A Python function on columns, or several of which each takes the other's result. */
private[tailrace] case class Call(
    name: String,
    functions: Seq[PythonFunction],
    arguments: Seq[(Int, Option[String])],
    id: Long,
    dataType: DataType) {

  def told: ju.Map[String, Any] = Map[String, Any](
    "name" -> name,
    "commands" -> functions.map(_.command.toArray).asJava,
    "args" -> arguments.collect { case (at, None) => at }.asJava,
    "kwargs" -> arguments.collect { case (at, Some(key)) => key -> at }.toMap.asJava,
    "id" -> id).asJava
}

/** The functions that one operator calls, the expressions they take, and the record that a row came from, where it is known. */
private[tailrace] case class Calls(calls: Seq[Call], inputs: Seq[Expression], origin: Option[Origin]) {

  def schema: StructType = StructType(inputs.zipWithIndex.map { case (input, at) => StructField(s"_$at", input.dataType) })
}

private[tailrace] object Calls {

  def of(udfs: Seq[PythonUDF]): Calls = {
    val inputs = new mutable.ArrayBuffer[Expression]
    var origin: Option[Origin] = None

    def place(argument: Expression): Int = inputs.indexWhere(_.semanticEquals(argument)) match {
      case -1 =>
        inputs += argument
        inputs.length - 1
      case known => known
    }

    def call(udf: PythonUDF): Call = udf.children match {
      case Seq(inner: PythonUDF) =>
        val called = call(inner)
        called.copy(
          name = s"${udf.name}(${called.name})",
          functions = called.functions :+ udf.func,
          id = udf.resultId.id,
          dataType = udf.dataType)
      case children =>
        origin = origin.orElse(children.collectFirst { case known: Origin => known })
        val arguments = children.filterNot(_.isInstanceOf[Origin]).map {
          case NamedArgumentExpression(key, value) => place(value) -> Some(key)
          case value => place(value) -> None
        }
        Call(udf.name, Seq(udf.func), arguments, udf.resultId.id, udf.dataType)
    }

    val calls = udfs.map(call)
    Calls(calls, inputs.toSeq, origin)
  }
}
