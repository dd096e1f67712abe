package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.DataInputStream
import java.nio.channels.ClosedChannelException
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonWorker, PythonWorkerHandle}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.PythonUDFRunner

/** The process that Spark's runner talks to: known once it has been started. */
private[tailrace] final class WorkerProcess {
  @volatile private var known: Option[(PythonWorker, Option[PythonWorkerHandle])] = None

  def is(worker: PythonWorker, handle: Option[PythonWorkerHandle]): Unit = known = Some((worker, handle))

  /** End it, whatever it does: whoever waits for its answer is told so. */
  def end(): Unit = known.foreach { case (worker, handle) =>
    handle.foreach(_.destroy())
    try worker.stop()
    catch { case _: Exception => } // it has ended already
  }
}

/** One of Spark's own workers that takes objects and answers each before it takes the next. */
private[tailrace] final class MessageWorker(
    function: ChainedPythonFunctions,
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    process: WorkerProcess,
    // Parameters, because Spark reads them while its own part of this object is made. Its smallest buffer: what has arrived
    // leaves at once, whatever its size.
    override val bufferSize: Int = 4,
    override val batchSizeForPythonUDF: Int = 1,
    override protected val pipelinedEnabled: Boolean = true)
    extends PythonUDFRunner(
      Seq((function, 0L)),
      PythonEvalType.SQL_BATCHED_UDF,
      Array(Array(0)),
      metrics,
      artifacts,
      None) {

  // The JVM reads answers while it writes, but a worker that only takes the next object when it is done needs no second thread.
  override val envVars: ju.Map[String, String] = new ju.HashMap[String, String](function.funcs.head.envVars) {
    override def put(key: String, value: String): String =
      if (key == "SPARK_PIPELINED_UDF") null else super.put(key, value)
  }

  protected override def newReaderIterator(
      stream: DataInputStream,
      writer: Writer,
      startTime: Long,
      env: SparkEnv,
      worker: PythonWorker,
      handle: Option[PythonWorkerHandle],
      releasedOrClosed: AtomicBoolean,
      context: TaskContext): Iterator[Array[Byte]] = {
    process.is(worker, handle)
    super.newReaderIterator(stream, writer, startTime, env, worker, handle, releasedOrClosed, context)
  }

  def run(messages: Iterator[Array[Byte]], context: TaskContext): Iterator[Array[Byte]] =
    begin(messages, context, MessageWorker.MostClosed)

  /**
   * Spark interrupts the thread that writes when a task ends. If that is still inside its last write, Java closes the worker's
   * channel, although the worker may wait for its next task by then. Whoever takes it finds out; the one after it is taken then.
   */
  private def begin(messages: Iterator[Array[Byte]], context: TaskContext, left: Int): Iterator[Array[Byte]] =
    try compute(messages, context.partitionId(), context)
    catch { case _: ClosedChannelException if left > 0 => begin(messages, context, left - 1) }
}

private[tailrace] object MessageWorker {

  /** More workers than that are not closed by chance. */
  private val MostClosed = 64
}
