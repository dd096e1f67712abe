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

/** A worker's reply: the results in order, the failures by row, and the time that each function took. */
private[tailrace] trait Reply {
  def size: Int
  def result(index: Int): InternalRow
  def failure(index: Int): Option[String]
  def failures: Seq[(Int, String)]
  def pythonNs: Seq[Long]

  /** The number of input rows that are completed; a map function may return any number of rows for each. */
  def completed: Int = size
}

/**
 * Encodes batches of rows as messages and decodes replies.
 *
 * Spark's worker takes pickled objects one by one and replies to each. The engine and its worker code define the objects.
 */
private[tailrace] trait MessageCodec {
  def encode(rows: Iterable[InternalRow]): Array[Byte]

  /** An empty message: the worker replies to it once its functions are loaded. */
  def ping: Array[Byte]

  /** Tells a function over an iterator that there are no more batches. */
  def endOfInput: Array[Byte]

  protected def decodeReply(parts: Array[Any]): Reply

  private var unpickler = new Unpickler

  /** Decode the reply to a message; nothing for the reply to a ping. */
  final def decode(message: Array[Byte]): Seq[Reply] = unpickle(message).asScala.filter(_ != null).map(decodeReply).toSeq

  private def unpickle(message: Array[Byte]): ju.ArrayList[Array[Any]] =
    try unpickler.loads(message).asInstanceOf[ju.ArrayList[Array[Any]]]
    catch {
      case unreadable: PickleException =>
        unpickler = new Unpickler // the old one still holds what it read before the exception
        throw new UnreadableReply(unreadable)
    }
}

/** A function returned an object that Python can pickle and Spark cannot read. */
private[tailrace] final class UnreadableReply(cause: PickleException)
    extends RuntimeException(
      s"Spark cannot read its result (${cause.getMessage}): return plain Python values, for numpy scalars their .item()",
      cause)

/** The parts that all replies share: failures and times. */
private[tailrace] abstract class DecodedReply(parts: Array[Any]) extends Reply {
  private val failureByRow = Option(parts(1).asInstanceOf[ju.Map[Any, String]])

  override def failure(index: Int): Option[String] = failureByRow.flatMap(all => Option(all.get(index)))

  override def failures: Seq[(Int, String)] =
    failureByRow.toSeq.flatMap(_.asScala).map { case (index, json) => index.asInstanceOf[Number].intValue() -> json }.sortBy(_._1)

  override def pythonNs: Seq[Long] = parts(2).asInstanceOf[ju.List[Number]].asScala.map(_.longValue()).toSeq
}

/** Pickled rows to the worker, one pickled column of results per function back. */
private[tailrace] final class PickledCodec(schema: StructType, results: Seq[DataType], binaryAsBytes: Boolean)
    extends MessageCodec {
  private val types = schema.map(_.dataType).toArray
  private val asRows = types.exists(EvaluatePython.needConversionInPython)
  private val fromJava = results.map(EvaluatePython.makeFromJava).toArray

  // The same options as Spark's own: the memo sends the field names of a row once, and equal values of different types differ.
  private val pickler = new Pickler(/* useMemo = */ asRows, /* valueCompare = */ false)

  override def encode(rows: Iterable[InternalRow]): Array[Byte] =
    pickler.dumps(Array[Any](Array[Any](rows.map(toJava).toArray)))

  private def toJava(row: InternalRow): Any =
    if (asRows) EvaluatePython.toJava(row, schema, binaryAsBytes)
    else Array.tabulate[Any](types.length)(at => EvaluatePython.toJava(row.get(at, types(at)), types(at), binaryAsBytes))

  override def ping: Array[Byte] = encode(Nil)

  override def endOfInput: Array[Byte] = throw new IllegalStateException("functions on pickled rows take no iterator")

  override protected def decodeReply(parts: Array[Any]): Reply = new DecodedReply(parts) {
    private val columns = parts(0).asInstanceOf[ju.List[ju.List[Any]]].asScala.toArray

    override def size: Int = columns.head.size

    override def result(index: Int): InternalRow =
      new GenericInternalRow(Array.tabulate[Any](columns.length)(column => fromJava(column)(columns(column).get(index))))
  }
}

/**
 * Batches in both directions: plain columns if the function and the rows allow it, else Arrow without the framing of a stream.
 *
 * @param results the types of the results
 */
private[tailrace] final class BatchCodec(
    schema: StructType,
    results: Seq[DataType],
    plain: Boolean,
    timeZone: String,
    largeTypes: Boolean,
    check: StructType => Unit,
    context: TaskContext)
    extends MessageCodec {
  private val allocator = ArrowUtils.rootAllocator.newChildAllocator("messages for Python", 0, Long.MaxValue)
  private val root = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(schema, timeZone, largeTypes), allocator)
  private val writer = ArrowWriter.create(root)
  private val unloader = new VectorUnloader(root)
  private var replyBatch: Option[(VectorSchemaRoot, VectorLoader, ColumnarBatch)] = None

  // Registered before the listeners of the worker and of the reader thread, so it runs after them: nothing writes any more.
  context.addTaskCompletionListener[Unit] { _ =>
    replyBatch.foreach(_._1.close())
    root.close()
    allocator.close()
  }

  private val plainInput = if (plain) Some(new PlainColumns(schema.map(_.dataType).toArray)) else None
  private val plainResults = new PlainColumns(results.toArray)

  override def encode(rows: Iterable[InternalRow]): Array[Byte] =
    plainInput.flatMap(_.encode(rows)).getOrElse(encodeArrow(rows))

  private def encodeArrow(rows: Iterable[InternalRow]): Array[Byte] = pickled(arrow(rows))

  /** Rows as an Arrow batch without its schema. */
  def arrow(rows: Iterable[InternalRow]): Array[Byte] = {
    rows.foreach(writer.write)
    writer.finish()
    val batch = unloader.getRecordBatch
    try serialized(MessageSerializer.serialize(_, batch))
    finally {
      batch.close()
      writer.reset()
    }
  }

  override def ping: Array[Byte] = pickled(Array.emptyByteArray)

  override def endOfInput: Array[Byte] = pickled(Array(0.toByte))

  override def decodeReply(parts: Array[Any]): Reply = {
    Option(parts(3).asInstanceOf[Array[Byte]]).foreach(useSchema)
    val (count, row) = parts(0) match {
      case bytes: Array[Byte] =>
        val batch = decodeArrow(bytes)
        (batch.numRows(), (index: Int) => batch.getRow(index): InternalRow)
      case columns: ju.List[_] =>
        val rows = plainResults.decode(columns.asScala.toSeq)
        (rows.size, rows.row _)
      case _ => (0, (_: Int) => throw new NoSuchElementException)
    }
    new DecodedReply(parts) {
      override def size: Int = count

      override def result(index: Int): InternalRow = row(index)

      override def completed: Int = parts(4).asInstanceOf[Number].intValue()
    }
  }

  private def decodeArrow(bytes: Array[Byte]): ColumnarBatch = {
    val (root, loader, batch) = replyBatch.get
    val read = MessageSerializer.deserializeRecordBatch(channel(bytes), allocator)
    try loader.load(read)
    finally read.close()
    batch.setNumRows(root.getRowCount)
    batch
  }

  /** Use the schema that the first Arrow reply carries for the replies from now on. */
  private def useSchema(serialized: Array[Byte]): Unit = {
    val next = VectorSchemaRoot.create(MessageSerializer.deserializeSchema(channel(serialized)), allocator)
    check(ArrowUtils.fromArrowSchema(next.getSchema))
    val columns = next.getFieldVectors.asScala.map(new ArrowColumnVector(_): ColumnVector).toArray
    replyBatch.foreach(_._1.close())
    replyBatch = Some((next, new VectorLoader(next), new ColumnarBatch(columns)))
  }

  private def channel(bytes: Array[Byte]) = new ReadChannel(Channels.newChannel(new ByteArrayInputStream(bytes)))

  private def serialized(write: WriteChannel => Unit): Array[Byte] = {
    val out = new ByteArrayOutputStream(1024)
    write(new WriteChannel(Channels.newChannel(out)))
    out.toByteArray
  }

  /** Pickle bytes as the only argument of the only row. */
  private def pickled(bytes: Array[Byte]): Array[Byte] = {
    val message = ByteBuffer.allocate(bytes.length + 10).order(ByteOrder.LITTLE_ENDIAN)
    message.put(0x80.toByte).put(3.toByte) // protocol 3, the first with bytes
    message.put('B'.toByte).putInt(bytes.length).put(bytes)
    message.put(Opcodes.TUPLE1.toByte).put(Opcodes.TUPLE1.toByte).put(Opcodes.STOP.toByte)
    message.array()
  }
}
