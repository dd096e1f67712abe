package org.apache.spark.sql.execution.python.tailrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{CreateNamedStruct, Expression, Literal, NonSQLExpression, Unevaluable}
import org.apache.spark.sql.types.DataType

/**
 * The record that a row came from: an argument of a Python function which that function never sees.
 *
 * As an argument it stays in the plan as far as the function does, whatever Spark's optimizer does with columns that nobody asks for.
 */
case class Origin(children: Seq[Expression], names: Seq[String])
    extends Expression with Unevaluable with NonSQLExpression {

  override def nullable: Boolean = false

  override def dataType: DataType = struct.dataType

  /** The same as a struct, to be evaluated. */
  def struct: CreateNamedStruct =
    CreateNamedStruct(names.zip(children).flatMap { case (name, child) => Seq[Expression](Literal(name), child) })

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): Origin = copy(children = newChildren)
}

/** Reads the columns of an [[Origin]] from a row of them. */
private[tailrace] case class OriginReader(names: Seq[String]) {
  private val at = names.zipWithIndex.toMap

  def text(row: InternalRow, name: String): Option[String] =
    at.get(name).filterNot(row.isNullAt).map(row.getUTF8String(_).toString)

  def int(row: InternalRow, name: String): Option[Int] = at.get(name).filterNot(row.isNullAt).map(row.getInt)

  def long(row: InternalRow, name: String): Option[Long] = at.get(name).filterNot(row.isNullAt).map(row.getLong)

  def struct(row: InternalRow, name: String, fields: Int): Option[InternalRow] =
    at.get(name).filterNot(row.isNullAt).map(row.getStruct(_, fields))
}
