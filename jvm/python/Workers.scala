package org.apache.spark.sql.execution.python.tailrace

import java.io.{BufferedInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, InputStream, IOException}
import java.nio.ByteBuffer
import java.nio.channels.AsynchronousCloseException
import java.util.concurrent.atomic.AtomicBoolean

import scala.jdk.OptionConverters._

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, LocalPythonWorkerHandle, PythonEvalType, PythonRDD, PythonWorker, PythonWorkerHandle}
import org.apache.spark.api.python.SpecialLengths.END_OF_DATA_SECTION
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.PythonUDFRunner
import org.apache.spark.sql.internal.SQLConf

/** The process that Spark's runner talks to: known once it has been started. */
private[tailrace] final class WorkerProcess {
  @volatile private var known: Option[Started] = None

  /** Whether it was ended because it took too long. */
  @volatile var hung = false

  def is(worker: PythonWorker, handle: Option[PythonWorkerHandle]): Unit = known = Some(new Started(worker, handle))

  /** Kill it and close its channel, so that a thread that waits for its answer gets an exception. */
  def end(): Unit = known.foreach(_.end())

  private final class Started(worker: PythonWorker, handle: Option[PythonWorkerHandle]) {
    // Looked up now: later, its pid may be another process's.
    private val process = handle.collect { case local: LocalPythonWorkerHandle => local }
      .flatMap(local => ProcessHandle.of(local.pid).toScala)

    def end(): Unit =
      try {
        // Spark's handle sends SIGTERM, which a worker may ignore.
        if (process.isDefined) process.foreach(_.destroyForcibly()) else handle.foreach(_.destroy())
      } finally {
        try worker.stop()
        catch { case _: Exception => } // it has ended already
      }
  }
}

/**
 * One of Spark's own workers, which takes objects and answers each before it takes the next.
 *
 * The task's thread sends the first and reads the answers; each further object is sent by the thread that has it, when the one
 * before is answered. Spark's own ways are to send as much as the worker takes, for which the next object is awaited while an
 * answer is there to be read, or to send from a thread of its own, which has to be woken for every object.
 */
private[tailrace] final class MessageWorker(
    function: ChainedPythonFunctions,
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    process: WorkerProcess,
    // Parameters, because Spark reads them while its own part of this object is made. Workers are told apart by the buffer's
    // size, too: these send each answer at once (worker/sending.py), which others need not.
    override val bufferSize: Int = MessageWorker.ReadAtOnce - 1,
    override val batchSizeForPythonUDF: Int = 1,
    override protected val pipelinedEnabled: Boolean = false)
    extends PythonUDFRunner(
      Seq((function, 0L)),
      PythonEvalType.SQL_BATCHED_UDF,
      Array(Array(0)),
      metrics,
      artifacts,
      None) {

  // Of the user's functions, which the Python half tells of; a second profiler around it would be in their way.
  override def runnerConf: Map[String, String] = super.runnerConf - SQLConf.PYTHON_UDF_PROFILER.key

  /**
   * Start a worker. If that fails with an I/O error, discard the worker and try the next one.
   *
   * An idle worker may have a closed channel: Java closes the channel of a thread that is interrupted while it writes. Or it
   * died with its daemon: to discard it, Spark writes to the daemon, which fails. Spark takes one such worker out of its idle
   * queue and throws. Once the queue is empty, Spark starts a new daemon.
   */
  def run(messages: Iterator[Array[Byte]], context: TaskContext): Iterator[Array[Byte]] = {
    var left = MessageWorker.MostDiscarded
    var answers: Option[Iterator[Array[Byte]]] = None
    while (answers.isEmpty) {
      answers =
        try Some(compute(messages, context.partitionId(), context))
        catch {
          case interrupted: AsynchronousCloseException => throw interrupted // this task is ending
          case _: IOException if left > 0 && !context.isInterrupted() =>
            left -= 1
            None
        }
    }
    answers.get
  }

  protected override def newWriter(
      env: SparkEnv,
      worker: PythonWorker,
      messages: Iterator[Array[Byte]],
      partition: Int,
      context: TaskContext): Writer =
    new Writer(env, worker, messages, partition, context) {
      private var opening: Array[Byte] = _

      /** Spark's stream, which is not used, opens, too; what is to be sent is made once: it is noted which broadcasts are known. */
      override def open(out: DataOutputStream): Unit = {
        if (opening == null) {
          val made = new ByteArrayOutputStream
          super.open(new DataOutputStream(made))
          opening = made.toByteArray
        }
        out.write(opening)
      }

      protected override def writeCommand(out: DataOutputStream): Unit = writeUDF(out)

      override def writeNextInputToStream(out: DataOutputStream): Boolean = {
        val isMore = PythonRDD.writeNextElementToStream(messages, out)
        if (!isMore) out.writeInt(END_OF_DATA_SECTION)
        isMore
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
    process.is(worker, handle)
    val answers = new InStep(worker, writer)
    stream = Some(answers)
    val buffered = new DataInputStream(new BufferedInputStream(answers, MessageWorker.ReadAtOnce))
    super.newReaderIterator(buffered, writer, startTime, env, worker, handle, releasedOrClosed, context)
  }

  private var stream: Option[InStep] = None

  /** Send the next object, which must be there; one thread at a time. Whoever reads answers is told what goes wrong with it. */
  def sendNext(): Unit = stream.foreach(_.sendNext())

  /** What a worker answers; before the first answer is waited for, it is sent something to answer. */
  private final class InStep(worker: PythonWorker, writer: Writer) extends InputStream {
    private val bytes = new ByteArrayOutputStream
    private val out = new DataOutputStream(bytes)
    private var isOpen = false
    private var isMore = true
    @volatile private var unsent: Option[Throwable] = None

    override def read(): Int = {
      val one = new Array[Byte](1)
      if (read(one, 0, 1) < 0) -1 else one(0) & 0xff
    }

    override def read(into: Array[Byte], from: Int, most: Int): Int = {
      if (!isOpen) {
        open()
        make()
        send()
      }
      val count =
        try worker.channel.read(ByteBuffer.wrap(into, from, most))
        catch { case ended: IOException => throw unsent.getOrElse(ended) }
      if (count < 0) unsent.foreach(throw _)
      count
    }

    def sendNext(): Unit =
      if (isMore && isMade) {
        try send()
        catch { case _: IOException => } // the worker has ended, which whoever reads its answer will see
      }

    private def isMade: Boolean =
      try {
        make()
        true
      } catch {
        case interrupted: InterruptedException => throw interrupted
        case failed: Throwable =>
          unsent = Some(failed)
          process.end()
          false
      }

    private def make(): Unit = {
      isMore = writer.writeNextInputToStream(out)
      if (!isMore) writer.close(out)
    }

    /** The worker gets its functions before there is a row, so that it loads them meanwhile. */
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
      val sent = ByteBuffer.wrap(bytes.toByteArray)
      bytes.reset()
      metrics("pythonDataSent") += sent.remaining()
      while (sent.hasRemaining) worker.channel.write(sent)
    }
  }
}

private[tailrace] object MessageWorker {
  val ReadAtOnce = 65536

  /** Most failed starts in a row; Spark's idle queue may hold a dead worker for every slot. */
  val MostDiscarded = 64
}
