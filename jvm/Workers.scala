package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}
import java.io.DataInputStream
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonWorker, PythonWorkerHandle}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonUDFRunner}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.vectorized.ColumnarBatch

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

private[tailrace] object Workers {

  /** Spark's smallest buffer: what has arrived leaves at once, whatever its size. */
  val AtOnce = 4

  /** One of Spark's own workers that takes and gives Arrow batches. */
  class ArrowWorker(
      function: ChainedPythonFunctions,
      schema: StructType,
      timeZone: String,
      largeTypes: Boolean,
      conf: Map[String, String],
      metrics: Map[String, SQLMetric],
      artifacts: Option[String],
      process: WorkerProcess,
      // Parameters, because Spark reads them while its own part of this object is made.
      override val bufferSize: Int = AtOnce,
      override protected val pipelinedEnabled: Boolean = true)
      extends ArrowPythonRunner(
        Seq((function, 0L)),
        PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
        Array(Array(0)),
        schema,
        timeZone,
        largeTypes,
        conf,
        metrics,
        artifacts,
        None) {

    // The worker flushes after every batch, so it may gather the parts of one: they leave in one piece.
    override val envVars: ju.Map[String, String] = new ju.HashMap[String, String](function.funcs.head.envVars) {
      override def put(key: String, value: String): String =
        super.put(key, if (key == "SPARK_BUFFER_SIZE") "65536" else value)
    }

    protected override def newReaderIterator(
        stream: DataInputStream,
        writer: Writer,
        startTime: Long,
        env: SparkEnv,
        worker: PythonWorker,
        handle: Option[PythonWorkerHandle],
        releasedOrClosed: AtomicBoolean,
        context: TaskContext): Iterator[ColumnarBatch] = {
      process.is(worker, handle)
      super.newReaderIterator(stream, writer, startTime, env, worker, handle, releasedOrClosed, context)
    }

    def run(groups: Iterator[Iterator[InternalRow]], context: TaskContext): Iterator[ColumnarBatch] =
      compute(groups, context.partitionId(), context)
  }

  /** One of Spark's own workers that takes objects and answers each before it takes the next. */
  class MessageWorker(
      function: ChainedPythonFunctions,
      metrics: Map[String, SQLMetric],
      artifacts: Option[String],
      process: WorkerProcess,
      override val bufferSize: Int = AtOnce,
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
      compute(messages, context.partitionId(), context)
  }
}
