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
 * Encodes and decodes columns of numbers and strings in the memory layout of numpy and Python, without Arrow.
 *
 * For a batch of few rows, the conversion through Arrow takes longer than most functions.
 */
private[tailrace] final class PlainColumns(types: Array[DataType]) {
  import PlainColumns._

  /** Encode rows as a pickled tuple of columns; None if a number is null, which numpy cannot hold, or a string is not UTF-8. */
  def encode(rows: Iterable[InternalRow]): Option[Array[Byte]] = {
    val count = rows.size
    val columns = types.map(column(_, count))
    val indices = columns.indices
    val arePlain = rows.forall(row => indices.forall(index => columns(index).add(row, index)))
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

  private def column(dataType: DataType, rows: Int): Column = dataType match {
    case DoubleType => new NumberColumn(8, rows, (out, row, index) => out.putDouble(row.getDouble(index)))
    case FloatType => new NumberColumn(4, rows, (out, row, index) => out.putFloat(row.getFloat(index)))
    case LongType => new NumberColumn(8, rows, (out, row, index) => out.putLong(row.getLong(index)))
    case IntegerType => new NumberColumn(4, rows, (out, row, index) => out.putInt(row.getInt(index)))
    case ShortType => new NumberColumn(2, rows, (out, row, index) => out.putShort(row.getShort(index)))
    case ByteType => new NumberColumn(1, rows, (out, row, index) => out.put(row.getByte(index)))
    case BooleanType => new NumberColumn(1, rows, (out, row, index) => out.put(if (row.getBoolean(index)) 1.toByte else 0.toByte))
    case _ => new StringColumn
  }

  private lazy val fromJava = types.map(EvaluatePython.makeFromJava)

  /** Decode the result columns of functions. */
  def decode(columns: Seq[Any]): DecodedColumns = {
    require(columns.length == types.length, s"Python returned ${columns.length} columns, expected ${types.length}")
    val read = columns.zip(types).zip(fromJava).map {
      case ((values: ju.List[_], _), convert) => values.size -> ((index: Int) => convert(values.get(index)))
      case ((bytes: Array[Byte], dataType), _) => bytes.length / dataType.defaultSize -> numberReader(bytes, dataType)
      case ((other, dataType), _) => throw new IllegalStateException(s"Python returned ${other.getClass}, expected $dataType")
    }
    require(read.map(_._1).distinct.length == 1, "Python returned columns of different lengths")
    new DecodedColumns(read.head._1, read.map(_._2).toArray)
  }

  /** NaN becomes null, as in Spark's conversion from pandas. */
  private def numberReader(bytes: Array[Byte], dataType: DataType): Int => Any = {
    val buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN)
    dataType match {
      case DoubleType => index => orNull(buffer.getDouble(index * 8))(_.isNaN)
      case FloatType => index => orNull(buffer.getFloat(index * 4))(_.isNaN)
      case LongType => index => buffer.getLong(index * 8)
      case IntegerType => index => buffer.getInt(index * 4)
      case ShortType => index => buffer.getShort(index * 2)
      case ByteType => index => buffer.get(index)
      case BooleanType => index => buffer.get(index) != 0
      case other => throw new IllegalStateException(s"Python returned numbers, expected $other")
    }
  }

  private def orNull[T](number: T)(isNaN: T => Boolean): Any = if (isNaN(number)) null else number
}

/** The results of functions, column by column. */
private[tailrace] final class DecodedColumns(val size: Int, columns: Array[Int => Any]) {
  def row(index: Int): InternalRow = new GenericInternalRow(columns.map(_(index)))
}

private[tailrace] object PlainColumns {

  /** The first pickle protocol with bytes. */
  private val Protocol = 3

  /** Whether all columns of the schema have a plain encoding. */
  def supports(schema: StructType): Boolean = schema.nonEmpty && schema.forall { column =>
    column.dataType match {
      case DoubleType | FloatType | LongType | IntegerType | ShortType | ByteType | BooleanType => true
      case _: StringType => true
      case _ => false
    }
  }

  private trait Column {

    /** Add the value of a row; return false if it has no plain encoding. */
    def add(row: InternalRow, index: Int): Boolean

    def pickle(out: ByteArrayOutputStream): Unit
  }

  private final class NumberColumn(width: Int, rows: Int, put: (ByteBuffer, InternalRow, Int) => Unit) extends Column {
    private val values = ByteBuffer.allocate(rows * width).order(ByteOrder.LITTLE_ENDIAN)

    override def add(row: InternalRow, index: Int): Boolean = {
      val isPresent = !row.isNullAt(index)
      if (isPresent) put(values, row, index)
      isPresent
    }

    override def pickle(out: ByteArrayOutputStream): Unit = write(out, Opcodes.BINBYTES, values.array())
  }

  private final class StringColumn extends Column {
    private val items = new ByteArrayOutputStream

    override def add(row: InternalRow, index: Int): Boolean =
      if (row.isNullAt(index)) {
        items.write(Opcodes.NONE)
        true
      } else {
        val text = row.getUTF8String(index)
        val isValid = text.isValid
        if (isValid) write(items, Opcodes.BINUNICODE, text.getBytes)
        isValid
      }

    override def pickle(out: ByteArrayOutputStream): Unit = {
      out.write(Opcodes.EMPTY_LIST)
      out.write(Opcodes.MARK)
      items.writeTo(out)
      out.write(Opcodes.APPENDS)
    }
  }

  /** Write an opcode, the length and the bytes. */
  private def write(out: ByteArrayOutputStream, opcode: Short, bytes: Array[Byte]): Unit = {
    out.write(opcode)
    out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(bytes.length).array())
    out.write(bytes)
  }
}
