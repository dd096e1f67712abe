package org.apache.spark.sql.execution.python.tailrace

import java.{util => ju}

import net.razorvine.pickle.{Pickler, Unpickler}

import org.apache.spark.TaskContext
import org.apache.spark.api.python.ChainedPythonFunctions
import org.apache.spark.sql.Row
import org.apache.spark.sql.api.python.PythonSQLUtils
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{UnsafeProjection, UnsafeRow}
import org.apache.spark.sql.streaming.TimerValues

/** Calls a stateful processor in a worker, and answers what it asks of its state meanwhile. */
private[tailrace] final class ProcessorCalls(
    operator: PythonOperator,
    name: String,
    command: ChainedPythonFunctions,
    codec: BatchCodec,
    state: StateRequests,
    context: TaskContext) {
  private val pickler = new Pickler(/* useMemo = */ false, /* valueCompare = */ false)
  private val unpickler = new Unpickler
  private val output = UnsafeProjection.create(operator.output, operator.output)
  private val worker = new WorkerConversation(command, operator, context)

  /** Call the processor, and return what it returns. Its results are complete, so all state calls have been answered. */
  def call(
      kind: Int,
      rows: Seq[UnsafeRow] = Nil,
      times: Option[TimerValues] = None,
      expired: Option[(Any, Long)] = None): Iterator[InternalRow] = {
    val began = System.nanoTime()
    state.begin()
    val message = pickled(
      kind,
      if (rows.isEmpty) null else codec.arrow(rows),
      times.map(_.getCurrentProcessingTimeInMs()).getOrElse(-1L),
      times.map(_.getCurrentWatermarkInMs()).getOrElse(-1L),
      expired.map { case (key, _) => PythonSQLUtils.toPyRow(key.asInstanceOf[Row]) }.orNull,
      expired.map(_._2).getOrElse(-1L),
      if (times.isDefined) state.valuesOfKey else null)
    var reply = unpickled(worker.exchange(message))
    while (reply.length == 1) {
      val answer = state.answer(reply.head.asInstanceOf[Array[Byte]])
      reply = unpickled(worker.exchange(pickled(PythonProcessor.Answer, answer)))
    }
    val decoded = codec.decodeReply(reply)
    decoded.failures.headOption.foreach { case (_, json) =>
      operator.settings.costs.count(name)(_.failed += 1)
      val failure = Failure.read(json)
      throw new FunctionFailedException(s"Python function ${failure.function} failed: ${failure.error}\n${failure.traceback}")
    }
    Option(reply(5).asInstanceOf[ju.Map[String, Array[Byte]]]).foreach(state.change)
    operator.settings.costs.count(name) { cost =>
      cost.rows += rows.length
      cost.calls += 1
      cost.mostRows = math.max(cost.mostRows, rows.length.toLong)
      cost.pythonNs += decoded.pythonNs.sum
      cost.tripNs += System.nanoTime() - began
    }
    // Copied: the next reply may use the same memory.
    Array.tabulate[InternalRow](decoded.size)(index => output(decoded.result(index)).copy()).iterator
  }

  def close(): Unit = worker.close()

  /** Pickle a message as the only argument of the only row. */
  private def pickled(fields: Any*): Array[Byte] = pickler.dumps(Array[Any](Array[Any](fields.toArray[Any])))

  private def unpickled(message: Array[Byte]): Array[Any] =
    unpickler.loads(message).asInstanceOf[ju.ArrayList[Array[Any]]].get(0)
}

/** One worker that gets messages one by one. If it ends or exceeds the time limit, the task fails. */
private[tailrace] final class WorkerConversation(command: ChainedPythonFunctions, operator: PythonOperator, context: TaskContext) {
  private val process = new WorkerProcess
  private val worker = new MessageWorker(command, operator.metrics, operator.artifacts, process)
  private var next: Array[Byte] = _
  private var isOpen = false
  private var isClosed = false
  @volatile private var waitingSinceNs: Option[Long] = None

  private val messages = new Iterator[Array[Byte]] {
    override def hasNext: Boolean = !isClosed
    override def next(): Array[Byte] = WorkerConversation.this.next
  }
  private lazy val replies = worker.run(messages, context)

  private val timeoutMs = operator.settings.timeoutMs
  private val timeoutCheck = WorkerSupervisor.repeat(math.max(50L, math.min(timeoutMs / 4, 1000L))) { () =>
    if (waitingSinceNs.exists(System.nanoTime() - _ > timeoutMs * 1000000L)) {
      process.timedOut = true
      process.kill()
    }
  }
  context.addTaskCompletionListener[Unit](_ => timeoutCheck.cancel(false))

  /** Send a message and wait for its reply. */
  def exchange(message: Array[Byte]): Array[Byte] = {
    next = message
    waitingSinceNs = Some(System.nanoTime())
    try {
      if (isOpen) worker.sendNext()
      isOpen = true // the first read sends the first message
      replies.next()
    } catch {
      case _: Exception if process.timedOut && !context.isInterrupted() =>
        throw new FunctionFailedException(
          s"Python function failed: TimeoutError: it took longer than ${timeoutMs / 1000.0} s, and its worker was ended")
    } finally waitingSinceNs = None
  }

  /** Let the worker end its input, so that Spark can use it again. */
  def close(): Unit = {
    isClosed = true
    worker.sendNext()
    while (replies.hasNext) replies.next()
  }
}
