package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, PythonUDF, UnsafeProjection}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.PandasGroupUtils
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{ExpiredTimerInfo, OutputMode, StatefulProcessor, TimeMode, TimerValues}
import org.apache.spark.sql.types.StructType

/**
 * The columns that a stateful processor in Python gets.
 *
 * @param input all columns, each once
 * @param keys which of them are the key
 * @param values which of them the processor sees as a pandas DataFrame
 */
private[tailrace] case class ProcessorColumns(input: Seq[Attribute], keys: Seq[Int], values: Seq[Int])

private[tailrace] object ProcessorColumns {

  /** The same columns that Spark's own operator sends. */
  def of(columns: Seq[Attribute], keys: Seq[Attribute]): ProcessorColumns = {
    val (input, offsets) = PandasGroupUtils.resolveArgOffsets(columns, keys)
    // The length, the number of keys, the keys, the values.
    ProcessorColumns(input, offsets.slice(2, 2 + keys.length).toSeq, offsets.drop(2 + keys.length).toSeq)
  }
}

/**
 * A stateful processor that calls one in Python, row by row, in one of Spark's own workers.
 *
 * Everything happens in the task's thread: the worker gets a row, asks for state as often as it needs, and replies with its results.
 */
private[sql] final class PythonProcessor(
    operator: PythonOperator,
    function: PythonUDF,
    evalType: Int,
    keySchema: StructType,
    columns: ProcessorColumns)
    extends StatefulProcessor[Any, Any, Any] {
  import PythonProcessor._

  def name: String = function.name

  /** How rows go to Python, for people. */
  def path: String = format.path

  @transient private var calls: ProcessorCalls = _
  @transient private lazy val toUnsafe = UnsafeProjection.create(operator.input.map(_.dataType).toArray)

  private def format =
    BatchFormat(operator, evalType, operator.input, DataTypeUtils.fromAttributes(operator.input))

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    val context = TaskContext.get()
    val markLoaded = ReadyWorkers.begin(operator.settings.id, context, System.identityHashCode(this))
    calls = new ProcessorCalls(
      operator,
      name,
      WorkerCommand.build(operator.settings.worker, spec(timeMode).asJava, Seq(function.func)),
      format.codec(operator.output.map(_.dataType), _ => (), context),
      new StateRequests(getHandle, keySchema),
      context)
    calls.call(Init)
    markLoaded()
  }

  override def handleInputRows(key: Any, rows: Iterator[Any], times: TimerValues): Iterator[Any] =
    calls.call(Rows, rows = rows.map(row => toUnsafe(row.asInstanceOf[InternalRow]).copy()).toSeq, times = Some(times))

  override def handleExpiredTimer(key: Any, times: TimerValues, expired: ExpiredTimerInfo): Iterator[Any] =
    calls.call(Timer, times = Some(times), expired = Some(key -> expired.getExpiryTimeInMs()))

  override def close(): Unit = if (calls != null) {
    calls.call(Close)
    calls.close()
  }

  private def spec(timeMode: TimeMode): Map[String, Any] = format.spec ++ Map(
    "call_with" -> "state",
    "time_mode" -> timeMode.toString,
    "key_schema" -> keySchema.json,
    "keys" -> columns.keys.asJava,
    "values" -> columns.values.asJava,
    "conf" -> operator.conf.asJava,
    "functions" -> Seq(FunctionCall(name, Seq(function.func), Nil, 0L, function.dataType).spec).asJava)
}

private[sql] object PythonProcessor {

  /** The processor in Python that an operator calls. */
  def of(plan: SparkPlan): Option[PythonProcessor] = plan match {
    case state: TransformWithStateExec =>
      Option(state.statefulProcessor: Any).collect { case processor: PythonProcessor => processor }
    case _ => None
  }

  /** What a message is about; `src/tailrace/worker/state_processor.py` has the same numbers. */
  val Init = 0
  val Rows = 1
  val Timer = 2
  val Close = 3
  val Answer = 4
}
