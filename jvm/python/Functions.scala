package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType, PythonFunction}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression, JoinedRow, Literal, UnsafeProjection}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.errors.QueryExecutionErrors
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.EvaluatePython
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/** What every kind of function needs to know. */
private[tailrace] case class Facts(
    read: Seq[Attribute],
    output: Seq[Attribute],
    timeZone: String,
    largeTypes: Boolean,
    conf: Map[String, String],
    metrics: Map[String, SQLMetric],
    artifacts: Option[String],
    run: PythonRun)

/** How Python functions are to run in one query. */
case class PythonRun(id: String, half: Array[Byte], limitMs: Long, failed: FailedRecords, costs: FunctionCosts)

/** An answer of a worker: results, in order, and what went wrong with which row. */
private[tailrace] trait Answer {
  def size: Int
  def result(at: Int): InternalRow
  def failure(at: Int): Option[String]
  def failed: Seq[(Int, String)]
  def pythonNs: Seq[Long]

  /** How many rows a function is done with, where it makes as many of one as it likes. */
  def done: Int = size
}

/**
 * Python functions over the rows of a partition, by Spark's own workers. What has arrived is sent at once, never more is
 * waited for; rows are awaited, and sent where the worker has none, by another thread than the one that reads results.
 */
private[sql] abstract class Functions(facts: Facts) extends (Iterator[Any] => Iterator[Any]) with Serializable {

  /** The functions' names. */
  def names: Seq[String]

  /** How rows go to Python, in words. */
  def path: String

  /** How to know the record that a row came from. */
  protected def origin: Option[Origin]

  /** What of a row goes to Python. */
  protected def inputs: Seq[Expression]

  /** The user's functions as a worker takes them; so many groups are to be tried apart from all others first. */
  protected def made(alone: Int): ChainedPythonFunctions

  protected def messages(context: TaskContext): Messages

  /** Whether a function takes an iterator, so that it has to be told when there is no more. */
  protected def iterates: Boolean

  protected def results(arrived: Arrived, context: TaskContext, sent: Messages): Iterator[InternalRow]

  override def apply(objects: Iterator[Any]): Iterator[Any] = {
    val context = TaskContext.get()
    val toUnsafe = UnsafeProjection.create(facts.read.map(_.dataType).toArray)
    val rows = objects.map(row => toUnsafe(row.asInstanceOf[InternalRow]).copy())
    val sent = messages(context) // before the thread that uses it is there, so that it is closed when that one has ended
    results(new Arrived(rows, context, limit, mostKept), context, sent)
  }

  /** How many rows may wait for an answer, where they need not be joined with it. */
  protected def mostKept: Int = Int.MaxValue

  /** The most rows in one call. */
  private def limit: Int = {
    val most = SQLConf.get.arrowMaxRecordsPerBatch
    if (most > 0) math.min(most, Functions.Most) else Functions.Most
  }

  /** An answer to each group of rows, by a worker, and by the next one where it ends. */
  protected def answers(arrived: Arrived, context: TaskContext, sent: Messages, failed: Failed): Iterator[Answer] = {
    val project = UnsafeProjection.create(inputs, facts.read)
    project.initialize(context.partitionId())
    new Supervised(
      arrived,
      context,
      facts.run.limitMs,
      process => answersOfOne(arrived, process, context, sent, project, failed),
      () => names.foreach(name => facts.run.costs.count(name)(_.replaced += 1)),
      (row, why) => failed.handle(why, row))
  }

  private def answersOfOne(
      arrived: Arrived,
      process: WorkerProcess,
      context: TaskContext,
      sent: Messages,
      project: UnsafeProjection,
      failed: Failed): Iterator[Answer] = {
    // What it takes to load the functions is not the first rows' affair, nor is it when that fails.
    val hello = asked(arrived, sent.hello)
    val groups = arrived.groups.map(group => sent.of(group.view.map(waiting => project(waiting.row))))
    val end = if (iterates) asked(arrived, sent.end) else Iterator.empty
    val worker = new MessageWorker(made(arrived.alone), facts.metrics, facts.artifacts, process)
    arrived.whenNextIsThere(() => worker.sendNext())
    val loaded = ReadyWorkers.begin(facts.run.id, context, System.identityHashCode(this))
    var isFirst = true
    worker.run(hello ++ groups ++ end, context).flatMap { message =>
      if (isFirst) loaded()
      isFirst = false
      try {
        val found = sent.answers(message)
        if (found.isEmpty) arrived.answered(0)
        found
      } catch {
        case unreadable: UnreadableAnswer if !iterates =>
          arrived.unreadable().foreach(failed.handle(unreadable.getMessage, _))
          Nil
      }
    }
  }

  /** A message that is about no row, made when it is its turn. */
  private def asked(arrived: Arrived, message: => Array[Byte]): Iterator[Array[Byte]] = Iterator(()).map { _ =>
    arrived.ask()
    message
  }

  /** Does what the pipeline wants with the records of rows that failed. */
  protected final class Failed {
    private val project = origin.map(known => UnsafeProjection.create(Seq[Expression](known.struct), facts.read))
    private val reader = OriginReader(origin.map(_.names).getOrElse(Nil))

    def handle(why: String, waiting: Waiting): Unit = handle(Failure(names.mkString(", "), why, ""), waiting)

    def handle(failure: Failure, waiting: Waiting): Unit = {
      names.find(_ == failure.function).orElse(names.headOption).foreach(name => facts.run.costs.count(name)(_.failed += 1))
      facts.run.failed.handle(failure, project.map(_(waiting.row).getStruct(0, reader.names.length)), reader)
    }
  }

  /** A worker has answered so much: what it is about, and what that has cost. */
  protected def answered(arrived: Arrived, count: Int, pythonNs: Seq[Long]): Seq[Waiting] = {
    val tripNs = arrived.sinceHandedNs // before the next group goes
    val rows = arrived.answered(count)
    val waitedNs = rows.iterator.map(row => row.handedNs - row.arrivedNs).sum
    names.zipWithIndex.foreach { case (name, at) =>
      facts.run.costs.count(name) { cost =>
        cost.rows += rows.length
        cost.calls += tripNs.size
        cost.mostRows = math.max(cost.mostRows, rows.length.toLong)
        cost.pythonNs += pythonNs.lift(at).getOrElse(0L)
        cost.waitedNs += waitedNs
        cost.tripNs += tripNs.getOrElse(0L)
      }
    }
    rows
  }

  protected def function(told: Map[String, Any], carried: Seq[PythonFunction]): ChainedPythonFunctions =
    Carrier.function(
      facts.run.half,
      (told + ("conf" -> facts.conf.asJava) + ("must_fail" -> facts.run.failed.deadLetters.isEmpty)).asJava,
      carried)
}

private[tailrace] object Functions {

  /** The most rows in one call: more would not be cheaper by the row, and the first of them would wait for the last. */
  val Most = 4096
}

/** Functions on columns: each result is joined with the row that it was made of, in order. */
private[sql] abstract class ColumnFunctions(facts: Facts, calls: Calls) extends Functions(facts) {
  override def names: Seq[String] = calls.calls.map(_.name)

  override protected def origin: Option[Origin] = calls.origin

  override protected def inputs: Seq[Expression] = calls.inputs

  protected def carried: Seq[PythonFunction] = calls.calls.flatMap(_.functions)

  protected def told: Map[String, Any] = Map(
    "functions" -> calls.calls.map(_.told).asJava,
    "inputs" -> calls.inputs.map(_.dataType.json).asJava)

  override protected def results(arrived: Arrived, context: TaskContext, sent: Messages): Iterator[InternalRow] = {
    val joined = new JoinedRow
    val output = UnsafeProjection.create(facts.output, facts.output)
    val failed = new Failed
    val results = answers(arrived, context, sent, failed).flatMap { answer =>
      answered(arrived, answer.size, answer.pythonNs).iterator.zipWithIndex.flatMap { case (waiting, at) =>
        val made = answer.failure(at) match {
          case Some(failure) => Left(failed.handle(Failure.read(failure), waiting))
          case None => converted(answer, at).left.map(failed.handle(_, waiting))
        }
        made.toOption.map(result => output(joined(waiting.row, result)): InternalRow)
      }
    }
    results ++ {
      require(arrived.unanswered(0).isEmpty, "a Python worker ended well without an answer to every row")
      Iterator.empty
    }
  }

  /** A result, or why it is none of its type: what comes pickled is found to be wrong here at the earliest. */
  private def converted(answer: Answer, at: Int): Either[String, InternalRow] =
    try Right(answer.result(at))
    catch { case NonFatal(wrong) => Left(s"its result is none of its type: ${wrong.getMessage}") }
}

/** `@udf` without Arrow. */
private[sql] class PickledFunctions(facts: Facts, calls: Calls, binaryAsBytes: Boolean) extends ColumnFunctions(facts, calls) {
  override def path: String = "pickled rows"

  override protected def iterates: Boolean = false

  override protected def made(alone: Int): ChainedPythonFunctions = function(told + ("way" -> "rows"), carried)

  override protected def messages(context: TaskContext): Messages = {
    EvaluatePython.registerPicklers()
    new PickledMessages(calls.schema, calls.calls.map(_.dataType), binaryAsBytes)
  }
}

/** `@pandas_udf`, `arrow_udf` and `@udf` with Arrow. Over an iterator, an answer may be about several groups, or a part of one. */
private[sql] class ArrowFunctions(facts: Facts, calls: Calls, evalType: Int) extends ColumnFunctions(facts, calls) {
  override def path: String = batches.path

  override protected def iterates: Boolean =
    evalType == PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF || evalType == PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF

  override protected def inputs: Seq[Expression] = if (calls.inputs.isEmpty) Seq(Literal(0)) else calls.inputs

  private def batches = Batches(facts, evalType, inputs, if (calls.inputs.isEmpty) Batches.Nothing else calls.schema)

  override protected def made(alone: Int): ChainedPythonFunctions =
    function(told ++ batches.told + ("way" -> (if (iterates) "stream" else "columns")) + ("alone" -> alone), carried)

  override protected def messages(context: TaskContext): Messages =
    batches.messages(calls.calls.map(_.dataType), requireTypes, context)

  /** What comes back from Python must be of the types that the user declared. */
  private def requireTypes(made: StructType): Unit = {
    val expected = calls.calls.map(_.dataType.transformRecursively { case own: UserDefinedType[_] => own.sqlType })
    val actual = made.map(_.dataType)
    if (!DataType.equalsIgnoreCompatibleCollation(expected, actual)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError("pandas_udf()", expected, actual)
    }
  }
}

/** `mapInPandas` and `mapInArrow`: as many rows of each as the function likes. */
private[sql] class MapFunction(
    facts: Facts,
    mapped: PythonFunction,
    name: String,
    makes: DataType,
    evalType: Int,
    override protected val origin: Option[Origin])
    extends Functions(facts) {

  override def names: Seq[String] = Seq(name)

  override def path: String = batches.path

  override protected def iterates: Boolean = true

  override protected def mostKept: Int = 20 * Functions.Most

  /** The columns that the function sees: those of the record's origin are not its own. */
  override protected val inputs: Seq[Attribute] =
    facts.read.filterNot(column => origin.exists(_.references.contains(column)))

  private def batches = Batches(facts, evalType, inputs, DataTypeUtils.fromAttributes(inputs))

  override protected def made(alone: Int): ChainedPythonFunctions = function(
    batches.told ++ Map(
      "way" -> "frames",
      "alone" -> alone,
      "functions" -> Seq(Call(name, Seq(mapped), Seq((0, None)), 0L, makes).told).asJava),
    Seq(mapped))

  override protected def messages(context: TaskContext): Messages =
    batches.messages(facts.output.map(_.dataType), requireType, context)

  override protected def results(arrived: Arrived, context: TaskContext, sent: Messages): Iterator[InternalRow] = {
    val output = UnsafeProjection.create(facts.output, facts.output)
    val failed = new Failed
    answers(arrived, context, sent, failed).flatMap { answer =>
      answer.failed.foreach { case (at, failure) =>
        val row = arrived.unanswered(at).getOrElse(throw new IllegalStateException(failure))
        failed.handle(Failure.read(failure), row)
      }
      answered(arrived, answer.done, answer.pythonNs)
      Iterator.range(0, answer.size).map(at => output(answer.result(at)): InternalRow)
    }
  }

  private def requireType(actual: StructType): Unit =
    if (SQLConf.get.pysparkArrowValidateSchema && !DataType.equalsIgnoreCompatibleNullability(from = actual, to = makes)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError(PythonEvalType.toString(evalType), Seq(makes), Seq(actual))
    }
}
