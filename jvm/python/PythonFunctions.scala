package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, UnsafeProjection}
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.tailrace.OutputIds

/**
 * The columns and the configuration of one operator that calls Python functions.
 *
 * @param depth how many such operators are below it in the plan
 */
private[tailrace] case class PythonOperator(
    input: Seq[Attribute],
    output: Seq[Attribute],
    timeZone: String,
    largeTypes: Boolean,
    conf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    depth: Int,
    settings: PythonSettings)

/** The settings that all Python functions of a query share; `worker` is the pickled worker code. */
case class PythonSettings(
    id: String,
    worker: Array[Byte],
    timeoutMs: Long,
    failedRecords: FailedRecords,
    costs: FunctionCosts)

/**
 * Runs Python functions over the rows of a partition in one of Spark's own workers.
 *
 * Rows that have arrived are sent at once and never wait for more. The thread that reads the input also sends rows to an idle
 * worker; the task's thread reads the results.
 */
private[sql] abstract class PythonFunctions(operator: PythonOperator)
    extends (Iterator[Any] => Iterator[Any]) with Serializable {

  /** The names of the functions. */
  def names: Seq[String]

  /** How rows go to Python, for people. */
  def path: String

  /** The record that a row came from, if it is known. */
  protected def origin: Option[RecordOrigin]

  /** The expressions that are sent to Python. */
  protected def inputs: Seq[Expression]

  /** Build the command for a worker; it evaluates the first `retries` batches apart from all others. */
  protected def command(retries: Int): ChainedPythonFunctions

  protected def codec(context: TaskContext): MessageCodec

  /** Whether the function takes an iterator, so that it needs a message at the end of the input. */
  protected def takesIterator: Boolean

  protected def results(pending: PendingRows, context: TaskContext, codec: MessageCodec): Iterator[InternalRow]

  override def apply(objects: Iterator[Any]): Iterator[Any] = {
    val context = TaskContext.get()
    val toUnsafe = UnsafeProjection.create(operator.input.map(_.dataType).toArray)
    val rows = objects.map(row => toUnsafe(row.asInstanceOf[InternalRow]).copy())
    val messages = codec(context) // created before the thread that uses it, so it is closed after that thread has ended
    results(new PendingRows(rows, context, maxBatchRows, maxInFlight), context, messages)
  }

  /** The most rows that are kept without a reply. No limit if results are joined with their rows. */
  protected def maxInFlight: Int = Int.MaxValue

  private def maxBatchRows: Int = {
    val configured = SQLConf.get.arrowMaxRecordsPerBatch
    if (configured > 0) math.min(configured, PythonFunctions.MaxBatchRows) else PythonFunctions.MaxBatchRows
  }

  /** The replies of a worker, and of its successors if it dies. */
  protected def replies(
      pending: PendingRows,
      context: TaskContext,
      codec: MessageCodec,
      failures: FailureHandler): Iterator[Reply] = {
    val project = UnsafeProjection.create(inputs, operator.input)
    project.initialize(context.partitionId())
    new WorkerSupervisor(
      pending,
      context,
      operator.settings.timeoutMs,
      process => repliesOf(process, pending, context, codec, project, failures),
      () => names.foreach(name => operator.settings.costs.count(name)(_.replaced += 1)),
      (row, why) => failAlone(row, why, pending, failures))
  }

  /** Handle the failure of a row that was returned without a reply. */
  private def failAlone(row: PendingRow, why: String, pending: PendingRows, failures: FailureHandler): Unit = {
    pending.begin(row)
    failures.handle(why, row)
    pending.end()
  }

  private def repliesOf(
      process: WorkerProcess,
      pending: PendingRows,
      context: TaskContext,
      codec: MessageCodec,
      project: UnsafeProjection,
      failures: FailureHandler): Iterator[Reply] = {
    // The ping keeps the time to load the functions, and a failure to load them, away from the first rows.
    val ping = controlMessage(pending, codec.ping)
    val batches = pending.batches.map(batch => codec.encode(batch.view.map(each => project(each.row))))
    val end = if (takesIterator) controlMessage(pending, codec.endOfInput) else Iterator.empty
    val worker = new MessageWorker(command(pending.retryCount), operator.metrics, operator.artifacts, process)
    pending.onNextReady(() => worker.sendNext())
    val markLoaded = ReadyWorkers.begin(operator.settings.id, context, System.identityHashCode(this))
    var isFirst = true
    worker.run(ping ++ batches ++ end, context).flatMap { message =>
      if (isFirst) markLoaded()
      isFirst = false
      try {
        val decoded = codec.decode(message)
        if (decoded.isEmpty) pending.complete(0)
        decoded
      } catch {
        case unreadable: UnreadableReply if !takesIterator =>
          pending.retryUnreadable().foreach(failAlone(_, unreadable.getMessage, pending, failures))
          Nil
      }
    }
  }

  /** A message without rows, encoded when it is sent. */
  private def controlMessage(pending: PendingRows, message: => Array[Byte]): Iterator[Array[Byte]] = Iterator(()).map { _ =>
    pending.beginControlMessage()
    message
  }

  /** Applies the pipeline's error policy to rows on which a function failed. */
  protected final class FailureHandler {
    private val project = origin.map(known => UnsafeProjection.create(Seq[Expression](known.struct), operator.input))
    private val reader = RecordOriginReader(origin.map(_.names).getOrElse(Nil))
    private val ids = new OutputIds(OutputIds.ofPython(operator.depth))

    def handle(why: String, row: PendingRow): Unit = handle(Failure(names.mkString(", "), why, ""), row)

    def handle(failure: Failure, pending: PendingRow): Unit = {
      val failed = names.find(_ == failure.function).orElse(names.headOption)
      failed.foreach(name => operator.settings.costs.count(name)(_.failed += 1))
      val coordinates = project.map(_(pending.row).getStruct(0, reader.names.length))
      operator.settings.failedRecords.handle(failure, coordinates, reader, ids)
    }
  }

  /** Take the rows that a reply completes, and count their cost. */
  protected def complete(pending: PendingRows, count: Int, pythonNs: Seq[Long]): Seq[PendingRow] = {
    val tripNs = pending.sinceSentNs // before the next batch is sent
    val rows = pending.complete(count)
    val waitedNs = rows.iterator.map(row => row.sentNs - row.arrivedNs).sum
    names.zipWithIndex.foreach { case (name, index) =>
      operator.settings.costs.count(name) { cost =>
        cost.rows += rows.length
        cost.calls += tripNs.size
        cost.mostRows = math.max(cost.mostRows, rows.length.toLong)
        cost.pythonNs += pythonNs.lift(index).getOrElse(0L)
        cost.waitedNs += waitedNs
        cost.tripNs += tripNs.getOrElse(0L)
      }
    }
    rows
  }

  protected def commandOf(spec: Map[String, Any], functions: Seq[PythonFunction]): ChainedPythonFunctions = {
    val mustFail = operator.settings.failedRecords.deadLetters.isEmpty
    WorkerCommand.build(
      operator.settings.worker,
      (spec + ("conf" -> operator.conf.asJava) + ("must_fail" -> mustFail)).asJava,
      functions)
  }
}

private[tailrace] object PythonFunctions {

  /** The most rows in one call. More would not be cheaper per row, and the first row would wait for the last. */
  val MaxBatchRows = 4096
}
