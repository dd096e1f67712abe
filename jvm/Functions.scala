package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._

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
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch, ColumnVector}

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
case class PythonRun(half: Array[Byte], limitMs: Long, failed: FailedRecords, costs: FunctionCosts)

/** An answer of a worker: results of so many rows, in order, or what went wrong with one. */
private[tailrace] trait Answer {
  def size: Int
  def result(at: Int): InternalRow
  def failure(at: Int): Option[String]
  def pythonNs: Seq[Long]
}

/**
 * Python functions over the rows of a partition, by Spark's own workers. What has arrived is sent at once, never more is
 * waited for; results are read by another thread than the one that awaits rows.
 */
private[sql] abstract class Functions(facts: Facts) extends (Iterator[Any] => Iterator[Any]) with Serializable {

  /** The functions' names. */
  def names: Seq[String]

  /** How rows go to Python, in words. */
  def path: String

  /** How to know the record that a row came from. */
  protected def origin: Option[Origin]

  protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow]

  override def apply(objects: Iterator[Any]): Iterator[Any] = {
    val context = TaskContext.get()
    val toUnsafe = UnsafeProjection.create(facts.read.map(_.dataType).toArray)
    val rows = objects.map(row => toUnsafe(row.asInstanceOf[InternalRow]).copy(): InternalRow)
    results(new Arrived(rows, context, limit, mostKept), context)
  }

  /** How many rows may wait for an answer, where they need not be joined with it. */
  protected def mostKept: Int = Int.MaxValue

  /** The most rows in one call. */
  private def limit: Int = {
    val most = SQLConf.get.arrowMaxRecordsPerBatch
    if (most > 0) math.min(most, Functions.Most) else Functions.Most
  }

  protected def supervised[A](arrived: Arrived, context: TaskContext, watches: Boolean = true)(
      start: (Arrived#Feed, WorkerProcess) => Iterator[A]): Iterator[A] = {
    val failed = new Failed
    new Supervised[A](
      arrived,
      context,
      facts.run.limitMs,
      watches,
      start,
      () => names.foreach(name => facts.run.costs.count(name)(_.replaced += 1)),
      (row, why) => failed.handle(Failure(names.mkString(", "), why, ""), row))
  }

  /** Does what the pipeline wants with the records of rows that failed. */
  protected final class Failed {
    private val project = origin.map(known => UnsafeProjection.create(Seq[Expression](known.struct), facts.read))
    private val reader = OriginReader(origin.map(_.names).getOrElse(Nil))

    def handle(failure: Failure, waiting: Waiting): Unit = {
      names.find(_ == failure.function).orElse(names.headOption).foreach(name => facts.run.costs.count(name)(_.failed += 1))
      facts.run.failed.handle(failure, project.map(_(waiting.row).getStruct(0, reader.names.length)), reader)
    }
  }

  protected def count(rows: Seq[Waiting], pythonNs: Seq[Long]): Unit = if (rows.nonEmpty) {
    val now = System.nanoTime()
    val waited = rows.iterator.map(row => row.handedNs - row.arrivedNs).sum
    names.zipWithIndex.foreach { case (name, at) =>
      facts.run.costs.count(name) { cost =>
        cost.rows += rows.length
        cost.calls += 1
        cost.mostRows = math.max(cost.mostRows, rows.length.toLong)
        cost.pythonNs += pythonNs.lift(at).getOrElse(0L)
        cost.waitedNs += waited
        cost.tripNs += now - rows.head.handedNs
      }
    }
  }

  protected def function(told: Map[String, Any], carried: Seq[PythonFunction]): ChainedPythonFunctions =
    Carrier.function(facts.run.half, (told + ("conf" -> facts.conf.asJava)).asJava, carried)

  protected def arrowWorker(function: ChainedPythonFunctions, schema: StructType, process: WorkerProcess): Workers.ArrowWorker =
    // Wrapped in another row, so that Python takes it for a table.
    new Workers.ArrowWorker(
      function,
      StructType(Seq(StructField("struct", schema))),
      facts.timeZone,
      facts.largeTypes,
      facts.conf,
      facts.metrics,
      facts.artifacts,
      process)

  /** A worker's groups, as the runner of one wants them. */
  protected def groups[T](feed: Arrived#Feed)(make: Seq[Waiting] => T): Iterator[T] =
    Iterator.continually(feed.next()).takeWhile(_.isDefined).map(group => make(group.get))

  /** An answer in Arrow: what the Python half adds, and after that the columns that functions made. */
  protected final class ArrowAnswer(batch: ColumnarBatch) extends Answer {
    private val parts = batch.column(0).asInstanceOf[ArrowColumnVector]
    private val made = new ColumnarBatch(Array.tabulate[ColumnVector](whole.length - Functions.Added) { at =>
      parts.getChild(at + Functions.Added)
    })
    made.setNumRows(batch.numRows())

    def columns: StructType = StructType(whole.fields.drop(Functions.Added))

    private def whole = parts.dataType().asInstanceOf[StructType]

    override def size: Int = batch.numRows()

    override def result(at: Int): InternalRow = made.getRow(at)

    override def failure(at: Int): Option[String] = note(0, at)

    override def pythonNs: Seq[Long] = note(1, 0).map(_.split(',').toSeq.map(_.toLong)).getOrElse(Nil)

    /** How many rows are done with, where a function makes as many of one as it likes. */
    def done: Int = note(2, 0).map(_.toInt).getOrElse(0)

    private def note(column: Int, at: Int): Option[String] = {
      val notes = parts.getChild(column)
      if (at >= size || notes.isNullAt(at)) None else Some(notes.getUTF8String(at).toString)
    }
  }
}

private[tailrace] object Functions {

  /** The most rows in one call: more would not be cheaper by the row, and the first of them would wait for the last. */
  val Most = 4096

  /** The columns of an answer that are not the function's. */
  val Added = 3
}

/** Functions on columns: each result is joined with the row that it was made of, in order. */
private[sql] abstract class ColumnFunctions(facts: Facts, calls: Calls) extends Functions(facts) {
  override def names: Seq[String] = calls.calls.map(_.name)

  override protected def origin: Option[Origin] = calls.origin

  protected def carried: Seq[PythonFunction] = calls.calls.flatMap(_.functions)

  protected def told: Map[String, Any] = Map(
    "functions" -> calls.calls.map(_.told).asJava,
    "inputs" -> calls.inputs.map(_.dataType.json).asJava)

  protected def answers(arrived: Arrived, context: TaskContext): Iterator[Answer]

  /** What comes back from Python must be of the types that the user declared. */
  protected def requireTypes(made: StructType): Unit = {
    val expected = calls.calls.map(_.dataType.transformRecursively { case own: UserDefinedType[_] => own.sqlType })
    val actual = made.map(_.dataType)
    if (!DataType.equalsIgnoreCompatibleCollation(expected, actual)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError("pandas_udf()", expected, actual)
    }
  }

  override protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow] = {
    val joined = new JoinedRow
    val output = UnsafeProjection.create(facts.output, facts.output)
    val failed = new Failed
    answers(arrived, context).flatMap { answer =>
      val rows = arrived.answered(answer.size)
      count(rows, answer.pythonNs)
      rows.iterator.zipWithIndex.flatMap { case (waiting, at) =>
        answer.failure(at) match {
          case Some(failure) =>
            failed.handle(Failure.read(failure), waiting)
            None
          case None => Some(output(joined(waiting.row, answer.result(at))): InternalRow)
        }
      }
    }
  }
}

/** Functions that answer each group of rows by itself: every kind but those that take an iterator. */
private[sql] abstract class MessageFunctions(facts: Facts, calls: Calls) extends ColumnFunctions(facts, calls) {
  protected def inputs: Seq[Expression] = calls.inputs

  protected def made: ChainedPythonFunctions

  protected def messages(context: TaskContext): Messages

  override protected def answers(arrived: Arrived, context: TaskContext): Iterator[Answer] = {
    val function = made
    supervised[Answer](arrived, context) { (feed, process) =>
      val project = UnsafeProjection.create(inputs, facts.read)
      project.initialize(context.partitionId())
      val sent = messages(context)
      val fed = groups(feed)(group => sent.of(group.iterator.map(waiting => project(waiting.row))))
      new Workers.MessageWorker(function, facts.metrics, facts.artifacts, process).run(fed, context).flatMap(sent.answers)
    }
  }
}

/** `@pandas_udf`, `arrow_udf` and `@udf` with Arrow. */
private[sql] class ArrowFunctions(facts: Facts, calls: Calls, evalType: Int) extends MessageFunctions(facts, calls) {
  override def path: String = "Arrow batches"

  override protected def inputs: Seq[Expression] = if (calls.inputs.isEmpty) Seq(Literal(0)) else calls.inputs

  private def schema = if (calls.inputs.isEmpty) ArrowMessages.Nothing else calls.schema

  override protected def made: ChainedPythonFunctions = function(
    told ++ Map(
      "way" -> "columns",
      "kind" -> evalType,
      "schema" -> ArrowMessages.kind(schema, facts.timeZone, facts.largeTypes)),
    carried)

  override protected def messages(context: TaskContext): Messages =
    new ArrowMessages(schema, facts.timeZone, facts.largeTypes, requireTypes, context)
}

/** `@udf` without Arrow. */
private[sql] class PickledFunctions(facts: Facts, calls: Calls, binaryAsBytes: Boolean) extends MessageFunctions(facts, calls) {
  override def path: String = "pickled rows"

  override protected def made: ChainedPythonFunctions = function(told + ("way" -> "rows"), carried)

  override protected def messages(context: TaskContext): Messages = {
    EvaluatePython.registerPicklers()
    new PickledMessages(calls.schema, calls.calls.map(_.dataType), binaryAsBytes)
  }
}

/** `@pandas_udf` and `arrow_udf` over an iterator: an answer may be about several groups, or a part of one. */
private[sql] class IteratorFunctions(facts: Facts, calls: Calls, evalType: Int) extends ColumnFunctions(facts, calls) {
  override def path: String = "Arrow batches"

  override protected def answers(arrived: Arrived, context: TaskContext): Iterator[Answer] = {
    def made = function(
      told ++ Map(
        "way" -> "stream",
        "kind" -> evalType,
        "limit_s" -> facts.run.limitMs / 1000.0,
        "alone" -> arrived.alone),
      carried)
    // A function that has asked for more rows is not late: only the Python half knows, and keeps the time limit here.
    supervised[Answer](arrived, context, watches = false) { (feed, process) =>
      val project = UnsafeProjection.create(calls.inputs, facts.read)
      project.initialize(context.partitionId())
      val fed = groups(feed)(_.iterator.map(waiting => InternalRow(project(waiting.row))))
      var checked = false
      arrowWorker(made, calls.schema, process).run(fed, context).map { batch =>
        val answer = new ArrowAnswer(batch)
        if (!checked) requireTypes(answer.columns)
        checked = true
        answer
      }
    }
  }
}

/** `mapInPandas` and `mapInArrow`: as many rows of each as the function likes. */
private[sql] class MapFunction(
    facts: Facts,
    mapped: PythonFunction,
    name: String,
    made: DataType,
    evalType: Int,
    override protected val origin: Option[Origin])
    extends Functions(facts) {

  override def names: Seq[String] = Seq(name)

  override def path: String = "Arrow batches"

  override protected def mostKept: Int = 20 * Functions.Most

  /** The columns that the function sees: those of the record's origin are not its own. */
  private val seen: Seq[Attribute] = facts.read.filterNot(column => origin.exists(_.references.contains(column)))

  override protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow] = {
    def carried = function(
      Map(
        "way" -> "frames",
        "kind" -> evalType,
        "limit_s" -> facts.run.limitMs / 1000.0,
        "alone" -> arrived.alone,
        "output" -> made.json,
        "functions" -> Seq(Call(name, Seq(mapped), Seq((0, None)), 0L, made).told).asJava),
      Seq(mapped))
    val output = UnsafeProjection.create(facts.output, facts.output)
    val failed = new Failed
    // A row that makes nothing is not heard of again, so the Python half keeps the time limit here.
    supervised[ArrowAnswer](arrived, context, watches = false) { (feed, process) =>
      done = 0
      var checked = !SQLConf.get.pysparkArrowValidateSchema
      val project = UnsafeProjection.create(seen, facts.read)
      val fed = groups(feed)(_.iterator.map(waiting => InternalRow(project(waiting.row))))
      arrowWorker(carried, DataTypeUtils.fromAttributes(seen), process).run(fed, context).map { batch =>
        val answer = new ArrowAnswer(batch)
        if (!checked) requireType(answer.columns)
        checked = true
        answer
      }
    }.flatMap { answer =>
      finish(arrived, answer)
      Iterator.range(0, answer.size).flatMap { at =>
        answer.failure(at) match {
          case Some("") => None // it only tells how far the function is
          case Some(failure) =>
            arrived.unanswered(0).foreach(failed.handle(Failure.read(failure), _))
            None
          case None => Some(output(answer.result(at)): InternalRow)
        }
      }
    }
  }

  @transient private var done = 0

  /** What the function was done with before it asked for the rows that this answer is about. */
  private def finish(arrived: Arrived, answer: ArrowAnswer): Unit = if (answer.done > done) {
    count(arrived.answered(answer.done - done), answer.pythonNs)
    done = answer.done
  }

  private def requireType(actual: StructType): Unit =
    if (!DataType.equalsIgnoreCompatibleNullability(from = actual, to = made)) {
      throw QueryExecutionErrors.arrowDataTypeMismatchError(PythonEvalType.toString(evalType), Seq(made), Seq(actual))
    }
}
