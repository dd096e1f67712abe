package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.{ByteArrayInputStream, ByteArrayOutputStream}
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.Channels

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.{Opcodes, PickleException, Pickler, Unpickler}
import org.apache.arrow.vector.{VectorLoader, VectorSchemaRoot, VectorUnloader}
import org.apache.arrow.vector.ipc.{ReadChannel, WriteChannel}
import org.apache.arrow.vector.ipc.message.MessageSerializer

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow
import org.apache.spark.sql.execution.arrow.ArrowWriter
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.ArrowUtils
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

/**
 * Groups of rows as messages, one object each, and answers to them.
 *
 * Spark's worker takes pickled objects one by one and answers each. What an object is, is between the engine and its Python half.
 */
private[tailrace] trait Messages {
  def of(rows: Iterable[InternalRow]): Array[Byte]

  /** Asks whether the functions are loaded. */
  def hello: Array[Byte]

  /** What tells a function over an iterator that there are no more groups. */
  def end: Array[Byte]

  def answer(parts: Array[Any]): Answer

  private var unpickler = new Unpickler

  /** None to a greeting. */
  final def answers(message: Array[Byte]): Seq[Answer] = read(message).asScala.filter(_ != null).map(answer).toSeq

  private def read(message: Array[Byte]): ju.ArrayList[Array[Any]] =
    try unpickler.loads(message).asInstanceOf[ju.ArrayList[Array[Any]]]
    catch {
      case wrong: PickleException =>
        unpickler = new Unpickler // it has in mind what it had read until then
        throw new UnreadableAnswer(wrong)
    }
}

/** A function gave something that Python can send and Spark cannot read. */
private[tailrace] final class UnreadableAnswer(cause: PickleException)
    extends RuntimeException(
      s"Spark cannot read its result (${cause.getMessage}): give values of Python's own, of numpy's their .item()",
      cause)

/** What every answer has beside results: what went wrong with which row, and how long each function took. */
private[tailrace] abstract class Noted(parts: Array[Any]) extends Answer {
  private val failures = Option(parts(1).asInstanceOf[ju.Map[Any, String]])

  override def failure(at: Int): Option[String] = failures.flatMap(all => Option(all.get(at)))

  override def failed: Seq[(Int, String)] =
    failures.toSeq.flatMap(_.asScala).map { case (at, told) => at.asInstanceOf[Number].intValue() -> told }.sortBy(_._1)

  override def pythonNs: Seq[Long] = parts(2).asInstanceOf[ju.List[Number]].asScala.map(_.longValue()).toSeq
}

/** Pickled rows, and pickled results of each function. */
private[tailrace] final class PickledMessages(schema: StructType, results: Seq[DataType], binaryAsBytes: Boolean)
    extends Messages {
  private val types = schema.map(_.dataType).toArray
  private val asRows = types.exists(EvaluatePython.needConversionInPython)
  private val fromJava = results.map(EvaluatePython.makeFromJava).toArray

  // As Spark's own: names of a row's fields are told once, and equal values of other types are no duplicates.
  private val pickler = new Pickler(/* useMemo = */ asRows, /* valueCompare = */ false)

  override def of(rows: Iterable[InternalRow]): Array[Byte] =
    pickler.dumps(Array[Any](Array[Any](rows.map(toJava).toArray)))

  private def toJava(row: InternalRow): Any =
    if (asRows) EvaluatePython.toJava(row, schema, binaryAsBytes)
    else Array.tabulate[Any](types.length)(at => EvaluatePython.toJava(row.get(at, types(at)), types(at), binaryAsBytes))

  override def hello: Array[Byte] = of(Nil)

  override def end: Array[Byte] = throw new IllegalStateException("no pickled function takes an iterator")

  override def answer(parts: Array[Any]): Answer = new Noted(parts) {
    private val columns = parts(0).asInstanceOf[ju.List[ju.List[Any]]].asScala.toArray

    override def size: Int = columns.head.size

    override def result(at: Int): InternalRow =
      new GenericInternalRow(Array.tabulate[Any](columns.length)(column => fromJava(column)(columns(column).get(at))))
  }
}

/**
 * Batches both ways: Arrow without the framing of a stream of it, or plain columns where the function is one on pandas and the
 * rows let it.
 *
 * @param results the types of what functions make
 */
private[tailrace] final class BatchMessages(
    schema: StructType,
    results: Seq[DataType],
    plain: Boolean,
    timeZone: String,
    largeTypes: Boolean,
    check: StructType => Unit,
    context: TaskContext)
    extends Messages {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("messages for Python", 0, Long.MaxValue)
  private val root = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, timeZone, largeTypes), allocator)
  private val writer = ArrowWriter.create(root)
  private val unloader = new VectorUnloader(root)
  private var made: Option[(VectorSchemaRoot, VectorLoader, ColumnarBatch)] = None

  // Before those of the worker and of the thread that sends, so that it runs after them: nobody writes any more.
  context.addTaskCompletionListener[Unit] { _ =>
    made.foreach(_._1.close())
    root.close()
    allocator.close()
  }

  private val plainInput = if (plain) Some(new PlainColumns(schema.map(_.dataType).toArray)) else None
  private val plainResults = new PlainColumns(results.toArray)

  override def of(rows: Iterable[InternalRow]): Array[Byte] = plainInput.flatMap(_.of(rows)).getOrElse(inArrow(rows))

  private def inArrow(rows: Iterable[InternalRow]): Array[Byte] = {
    rows.foreach(writer.write)
    writer.finish()
    val batch = unloader.getRecordBatch
    try pickled(serialized(MessageSerializer.serialize(_, batch)))
    finally {
      batch.close()
      writer.reset()
    }
  }

  override def hello: Array[Byte] = pickled(Array.emptyByteArray)

  override def end: Array[Byte] = pickled(Array(0.toByte))

  override def answer(parts: Array[Any]): Answer = {
    Option(parts(3).asInstanceOf[Array[Byte]]).foreach(begin)
    val (count, row) = parts(0) match {
      case bytes: Array[Byte] =>
        val batch = loaded(bytes)
        (batch.numRows(), (at: Int) => batch.getRow(at): InternalRow)
      case columns: ju.List[_] =>
        val rows = plainResults.made(columns.asScala.toSeq)
        (rows.size, rows.row _)
      case _ => (0, (_: Int) => throw new NoSuchElementException)
    }
    new Noted(parts) {
      override def size: Int = count

      override def result(at: Int): InternalRow = row(at)

      override def done: Int = parts(4).asInstanceOf[Number].intValue()
    }
  }

  private def loaded(bytes: Array[Byte]): ColumnarBatch = {
    val (root, loader, batch) = made.get
    val read = MessageSerializer.deserializeRecordBatch(channel(bytes), allocator)
    try loader.load(read)
    finally read.close()
    batch.setNumRows(root.getRowCount)
    batch
  }

  /** The first answer in Arrow tells of what kind the others are. */
  private def begin(kind: Array[Byte]): Unit = {
    val next = VectorSchemaRoot.create(MessageSerializer.deserializeSchema(channel(kind)), allocator)
    check(ArrowUtils.fromArrowSchema(next.getSchema))
    val columns = next.getFieldVectors.asScala.map(new ArrowColumnVector(_): ColumnVector).toArray
    made.foreach(_._1.close())
    made = Some((next, new VectorLoader(next), new ColumnarBatch(columns)))
  }

  private def channel(bytes: Array[Byte]) = new ReadChannel(Channels.newChannel(new ByteArrayInputStream(bytes)))

  private def serialized(write: WriteChannel => Unit): Array[Byte] = {
    val out = new ByteArrayOutputStream(1024)
    write(new WriteChannel(Channels.newChannel(out)))
    out.toByteArray
  }

  /** A tuple of a row that is a tuple of these bytes. */
  private def pickled(bytes: Array[Byte]): Array[Byte] = {
    val message = ByteBuffer.allocate(bytes.length + 10).order(ByteOrder.LITTLE_ENDIAN)
    message.put(0x80.toByte).put(3.toByte) // protocol 3, the first that knows bytes
    message.put('B'.toByte).putInt(bytes.length).put(bytes)
    message.put(Opcodes.TUPLE1.toByte).put(Opcodes.TUPLE1.toByte).put(Opcodes.STOP.toByte)
    message.array()
  }
}
