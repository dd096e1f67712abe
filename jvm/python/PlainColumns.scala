package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}

import net.razorvine.pickle.Opcodes

import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.types._

/**
 * Columns of numbers and text as numpy or Python has them, both ways. Where a call is about few rows, Arrow takes longer than most
 * functions to compute.
 */
private[tailrace] final class PlainColumns(types: Array[DataType]) {
  import PlainColumns._

  /** Rows as a tuple of columns, pickled; None where a number is null, which numpy does not know, or a text is not Unicode. */
  def of(rows: Iterable[InternalRow]): Option[Array[Byte]] = {
    val count = rows.size
    val columns = types.map(column(_, count))
    val places = columns.indices
    val arePlain = rows.forall(row => places.forall(at => columns(at).add(row, at)))
    if (arePlain) Some(pickled(columns)) else None
  }

  private def pickled(columns: Array[Column]): Array[Byte] = {
    val out = new ByteArrayOutputStream(1024)
    out.write(Opcodes.PROTO)
    out.write(Protocol)
    out.write(Opcodes.MARK)
    columns.foreach(_.pickle(out))
    out.write(Opcodes.TUPLE)
    out.write(Opcodes.TUPLE1)
    out.write(Opcodes.TUPLE1)
    out.write(Opcodes.STOP)
    out.toByteArray
  }

  private def column(kind: DataType, rows: Int): Column = kind match {
    case DoubleType => new Numbers(8, rows, (into, row, at) => into.putDouble(row.getDouble(at)))
    case FloatType => new Numbers(4, rows, (into, row, at) => into.putFloat(row.getFloat(at)))
    case LongType => new Numbers(8, rows, (into, row, at) => into.putLong(row.getLong(at)))
    case IntegerType => new Numbers(4, rows, (into, row, at) => into.putInt(row.getInt(at)))
    case ShortType => new Numbers(2, rows, (into, row, at) => into.putShort(row.getShort(at)))
    case ByteType => new Numbers(1, rows, (into, row, at) => into.put(row.getByte(at)))
    case BooleanType => new Numbers(1, rows, (into, row, at) => into.put(if (row.getBoolean(at)) 1.toByte else 0.toByte))
    case _ => new Texts
  }

  private lazy val fromJava = types.map(EvaluatePython.makeFromJava)

  /** Columns that functions made, as rows. */
  def made(columns: Seq[Any]): MadeColumns = {
    require(columns.length == types.length, s"${columns.length} columns came from Python, not ${types.length}")
    val read = columns.zip(types).zip(fromJava).map {
      case ((values: ju.List[_], _), convert) => values.size -> ((at: Int) => convert(values.get(at)))
      case ((numbers: Array[Byte], kind), _) => numbers.length / kind.defaultSize -> number(numbers, kind)
      case ((other, kind), _) => throw new IllegalStateException(s"${other.getClass} came from Python, not $kind")
    }
    require(read.map(_._1).distinct.length == 1, "columns of several lengths came from Python")
    new MadeColumns(read.head._1, read.map(_._2).toArray)
  }

  /** Not a number is null, as Spark has it for what comes from pandas. */
  private def number(numbers: Array[Byte], kind: DataType): Int => Any = {
    val bytes = ByteBuffer.wrap(numbers).order(ByteOrder.LITTLE_ENDIAN)
    kind match {
      case DoubleType => at => orNull(bytes.getDouble(at * 8))(_.isNaN)
      case FloatType => at => orNull(bytes.getFloat(at * 4))(_.isNaN)
      case LongType => at => bytes.getLong(at * 8)
      case IntegerType => at => bytes.getInt(at * 4)
      case ShortType => at => bytes.getShort(at * 2)
      case ByteType => at => bytes.get(at)
      case BooleanType => at => bytes.get(at) != 0
      case other => throw new IllegalStateException(s"numbers came from Python, not $other")
    }
  }

  private def orNull[T](number: T)(isNone: T => Boolean): Any = if (isNone(number)) null else number
}

/** What functions made, column by column. */
private[tailrace] final class MadeColumns(val size: Int, columns: Array[Int => Any]) {
  def row(at: Int): InternalRow = new GenericInternalRow(columns.map(_(at)))
}

private[tailrace] object PlainColumns {

  /** The first protocol of Python's pickle that knows bytes. */
  private val Protocol = 3

  /** Whether columns of these types can be plain. */
  def canBe(schema: StructType): Boolean = schema.nonEmpty && schema.forall { column =>
    column.dataType match {
      case DoubleType | FloatType | LongType | IntegerType | ShortType | ByteType | BooleanType => true
      case _: StringType => true
      case _ => false
    }
  }

  private trait Column {

    /** Whether the row's value could be added. */
    def add(row: InternalRow, at: Int): Boolean

    def pickle(out: ByteArrayOutputStream): Unit
  }

  private final class Numbers(width: Int, rows: Int, put: (ByteBuffer, InternalRow, Int) => Unit) extends Column {
    private val values = ByteBuffer.allocate(rows * width).order(ByteOrder.LITTLE_ENDIAN)

    override def add(row: InternalRow, at: Int): Boolean = {
      val isThere = !row.isNullAt(at)
      if (isThere) put(values, row, at)
      isThere
    }

    override def pickle(out: ByteArrayOutputStream): Unit = write(out, Opcodes.BINBYTES, values.array())
  }

  private final class Texts extends Column {
    private val items = new ByteArrayOutputStream

    override def add(row: InternalRow, at: Int): Boolean =
      if (row.isNullAt(at)) {
        items.write(Opcodes.NONE)
        true
      } else {
        val text = row.getUTF8String(at)
        val isText = text.isValid
        if (isText) write(items, Opcodes.BINUNICODE, text.getBytes)
        isText
      }

    override def pickle(out: ByteArrayOutputStream): Unit = {
      out.write(Opcodes.EMPTY_LIST)
      out.write(Opcodes.MARK)
      items.writeTo(out)
      out.write(Opcodes.APPENDS)
    }
  }

  /** Bytes or text, with its length in front. */
  private def write(out: ByteArrayOutputStream, kind: Short, bytes: Array[Byte]): Unit = {
    out.write(kind)
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(bytes.length).array())
    out.write(bytes)
  }
}
