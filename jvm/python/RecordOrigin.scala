package org.apache.spark.sql.execution.python.tailrace

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{CreateNamedStruct, Expression, Literal, NonSQLExpression, Unevaluable}
import org.apache.spark.sql.types.DataType

/**
 * The coordinates of the record that a row came from, as a hidden argument of a Python function.
 *
 * Because the function refers to the columns, Spark's optimizer keeps them in the plan up to the function.
 */
case class RecordOrigin(children: Seq[Expression], names: Seq[String])
    extends Expression with Unevaluable with NonSQLExpression {

  override def nullable: Boolean = false

  override def dataType: DataType = struct.dataType

  /** The coordinates as a struct that can be evaluated. */
  def struct: CreateNamedStruct =
    CreateNamedStruct(names.zip(children).flatMap { case (name, child) => Seq[Expression](Literal(name), child) })

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[Expression]): RecordOrigin =
    copy(children = newChildren)
}

/** Reads the fields of a [[RecordOrigin]] that was evaluated. */
private[tailrace] case class RecordOriginReader(names: Seq[String]) {
  private val indexOf = names.zipWithIndex.toMap

  def text(row: InternalRow, name: String): Option[String] =
    indexOf.get(name).filterNot(row.isNullAt).map(row.getUTF8String(_).toString)

  def int(row: InternalRow, name: String): Option[Int] = indexOf.get(name).filterNot(row.isNullAt).map(row.getInt)

  def long(row: InternalRow, name: String): Option[Long] = indexOf.get(name).filterNot(row.isNullAt).map(row.getLong)

  def struct(row: InternalRow, name: String, fields: Int): Option[InternalRow] =
    indexOf.get(name).filterNot(row.isNullAt).map(row.getStruct(_, fields))
}
