package org.apache.spark.sql.execution.python.tailrace

import java.io.{BufferedInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, InputStream, IOException}
import java.nio.ByteBuffer
import java.nio.channels.AsynchronousCloseException
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonRDD, PythonWorker, PythonWorkerHandle}
import org.apache.spark.api.python.SpecialLengths.END_OF_DATA_SECTION
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.PythonUDFRunner
import org.apache.spark.sql.internal.SQLConf

/**
 * A runner for one of Spark's workers that sends a message only after the reply to the previous one.
 *
 * The task's thread sends the first message and reads the replies. The thread that has the next message sends it. Spark's own
 * runner either sends as much as the worker takes, so it waits for input while a reply is ready to be read, or sends from a
 * thread of its own, which has to wake up for every message.
 */
private[tailrace] final class MessageWorker(
    command: ChainedPythonFunctions,
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    process: WorkerProcess,
    // Parameters, because Spark's constructor reads them. The buffer size is also part of the key of idle workers: ours flush
    // each reply (worker/reply.py), so other queries must not get them.
    override val bufferSize: Int = MessageWorker.ReadBufferBytes - 1,
    override val batchSizeForPythonUDF: Int = 1,
    override protected val pipelinedEnabled: Boolean = false)
    extends PythonUDFRunner(
      Seq((command, 0L)),
      PythonEvalType.SQL_BATCHED_UDF,
      Array(Array(0)),
      metrics,
      artifacts,
      None) {

  // The worker code profiles the user's functions; a second profiler around it would interfere.
  override def runnerConf: Map[String, String] = super.runnerConf - SQLConf.PYTHON_UDF_PROFILER.key

  /**
   * Start a worker. If that fails with an I/O error, discard the worker and try the next one.
   *
   * An idle worker may have a closed channel: Java closes the channel of a thread that is interrupted while it writes. Or it
   * died with its daemon: to discard it, Spark writes to the daemon, which fails. Spark takes one such worker out of its idle
   * queue and throws. Once the queue is empty, Spark starts a new daemon.
   */
  def run(messages: Iterator[Array[Byte]], context: TaskContext): Iterator[Array[Byte]] = {
    var attemptsLeft = MessageWorker.MaxDiscarded
    var replies: Option[Iterator[Array[Byte]]] = None
    while (replies.isEmpty) {
      replies =
        try Some(compute(messages, context.partitionId(), context))
        catch {
          case interrupted: AsynchronousCloseException => throw interrupted // this task is ending
          case _: IOException if attemptsLeft > 0 && !context.isInterrupted() =>
            attemptsLeft -= 1
            None
        }
    }
    replies.get
  }

  protected override def newWriter(
      env: SparkEnv,
      worker: PythonWorker,
      messages: Iterator[Array[Byte]],
      partition: Int,
      context: TaskContext): Writer =
    new Writer(env, worker, messages, partition, context) {
      private var header: Array[Byte] = _

      /** Write the header once and keep it: Spark calls this twice, and the second header would omit the new broadcasts. */
      override def open(out: DataOutputStream): Unit = {
        if (header == null) {
          val bytes = new ByteArrayOutputStream
          super.open(new DataOutputStream(bytes))
          header = bytes.toByteArray
        }
        out.write(header)
      }

      protected override def writeCommand(out: DataOutputStream): Unit = writeUDF(out)

      override def writeNextInputToStream(out: DataOutputStream): Boolean = {
        val hasMore = PythonRDD.writeNextElementToStream(messages, out)
        if (!hasMore) out.writeInt(END_OF_DATA_SECTION)
        hasMore
      }
    }

  protected override def newReaderIterator(
      unused: DataInputStream,
      writer: Writer,
      startTime: Long,
      env: SparkEnv,
      worker: PythonWorker,
      handle: Option[PythonWorkerHandle],
      releasedOrClosed: AtomicBoolean,
      context: TaskContext): Iterator[Array[Byte]] = {
    process.attach(worker, handle)
    val replies = new ReplyStream(worker, writer)
    stream = Some(replies)
    val buffered = new DataInputStream(new BufferedInputStream(replies, MessageWorker.ReadBufferBytes))
    super.newReaderIterator(buffered, writer, startTime, env, worker, handle, releasedOrClosed, context)
  }

  private var stream: Option[ReplyStream] = None

  /** Send the next message, which must be ready. One thread at a time. The reader of the replies gets any failure. */
  def sendNext(): Unit = stream.foreach(_.sendNext())

  /** The bytes of the replies. The first read sends the first message. */
  private final class ReplyStream(worker: PythonWorker, writer: Writer) extends InputStream {
    private val bytes = new ByteArrayOutputStream
    private val out = new DataOutputStream(bytes)
    private var isOpen = false
    private var hasMore = true
    @volatile private var sendFailure: Option[Throwable] = None

    override def read(): Int = {
      val one = new Array[Byte](1)
      if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
    }

    override def read(buffer: Array[Byte], offset: Int, length: Int): Int = {
      if (!isOpen) {
        open()
        encodeNext()
        send()
      }
      val count =
        try worker.channel.read(ByteBuffer.wrap(buffer, offset, length))
        catch { case closed: IOException => throw sendFailure.getOrElse(closed) }
      if (count < 0) sendFailure.foreach(throw _)
      count
    }

    def sendNext(): Unit =
      if (hasMore && tryEncodeNext()) {
        try send()
        catch { case _: IOException => } // the worker is dead, which the reader of its reply finds out
      }

    private def tryEncodeNext(): Boolean =
      try {
        encodeNext()
        true
      } catch {
        case interrupted: InterruptedException => throw interrupted
        case failed: Throwable =>
          sendFailure = Some(failed)
          process.kill()
          false
      }

    private def encodeNext(): Unit = {
      hasMore = writer.writeNextInputToStream(out)
      if (!hasMore) writer.close(out)
    }

    /** Send the functions before the first row, so that the worker loads them meanwhile. */
    private def open(): Unit = {
      worker.selectionKey.cancel()
      worker.selector.close()
      worker.channel.configureBlocking(true)
      worker.refresh()
      isOpen = true
      writer.open(out)
      send()
    }

    private def send(): Unit = {
      val message = ByteBuffer.wrap(bytes.toByteArray)
      bytes.reset()
      metrics("pythonDataSent") += message.remaining()
      while (message.hasRemaining) worker.channel.write(message)
    }
  }
}

private[tailrace] object MessageWorker {
  val ReadBufferBytes = 65536

  /** Most failed starts in a row; Spark's idle queue may hold a dead worker for every slot. */
  val MaxDiscarded = 64
}
