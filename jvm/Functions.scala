package org.apache.spark.sql.execution.python.tailrace

import scala.jdk.CollectionConverters._

import net.razorvine.pickle.Unpickler

import org.apache.spark.TaskContext
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.{Attribute, GenericInternalRow, PythonUDF, UnsafeProjection}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.execution.metric.SQLMetric
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, ArrowPythonWithNamedArgumentRunner, BatchEvalPythonExec, EvalPythonEvaluatorFactory, EvaluatePython, PythonUDFWithNamedArgumentsRunner}
import org.apache.spark.sql.execution.python.EvalPythonExec.ArgumentMetadata
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.{DataType, StructField, StructType, UserDefinedType}
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnarBatch}

/** What every kind of function needs to know. */
private[tailrace] case class Facts(
    read: Seq[Attribute],
    output: Seq[Attribute],
    timeZone: String,
    largeTypes: Boolean,
    metrics: Map[String, SQLMetric],
    artifacts: Option[String])

/**
 * Python functions over the rows of a partition, by Spark's own workers. What has arrived is sent at once, never more is
 * waited for; results are read by another thread than the one that awaits rows.
 */
private[sql] abstract class Functions(facts: Facts) extends (Iterator[Any] => Iterator[Any]) with Serializable {

  /** The functions' names. */
  def names: Seq[String]

  protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow]

  override def apply(objects: Iterator[Any]): Iterator[Any] = {
    val context = TaskContext.get()
    val toUnsafe = UnsafeProjection.create(facts.read.map(_.dataType).toArray)
    val rows = objects.map(row => toUnsafe(row.asInstanceOf[InternalRow]).copy(): InternalRow)
    results(new Arrived(rows, context), context)
  }

  protected def limit: Int = {
    val most = SQLConf.get.arrowMaxRecordsPerBatch
    if (most > 0) most else Int.MaxValue
  }
}

/** Functions on columns: each result is joined with the row that it was made of, in order. */
private[sql] abstract class ColumnFunctions(facts: Facts, udfs: Seq[PythonUDF]) extends Functions(facts) {
  override def names: Seq[String] = udfs.map(_.name)

  protected def evaluate(
      functions: Seq[(ChainedPythonFunctions, Long)],
      arguments: Array[Array[ArgumentMetadata]],
      groups: Iterator[Iterator[InternalRow]],
      schema: StructType,
      context: TaskContext): Iterator[InternalRow]

  override protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow] =
    new Joined(arrived).createEvaluator().eval(context.partitionId(), arrived)

  /** Spark's own way to find the arguments and to join results with rows. */
  private class Joined(arrived: Arrived) extends EvalPythonEvaluatorFactory(facts.read, udfs, facts.output) {
    override protected def evaluate(
        functions: Seq[(ChainedPythonFunctions, Long)],
        arguments: Array[Array[ArgumentMetadata]],
        rows: Iterator[InternalRow],
        schema: StructType,
        context: TaskContext): Iterator[InternalRow] =
      ColumnFunctions.this.evaluate(functions, arguments, Arrived.groups(arrived, rows, limit), schema, context)
  }
}

/** `@pandas_udf`, `arrow_udf` and `@udf` with Arrow. */
private[sql] class ArrowFunctions(facts: Facts, udfs: Seq[PythonUDF], evalType: Int, runnerConf: Map[String, String])
    extends ColumnFunctions(facts, udfs) {

  override protected def evaluate(
      functions: Seq[(ChainedPythonFunctions, Long)],
      arguments: Array[Array[ArgumentMetadata]],
      groups: Iterator[Iterator[InternalRow]],
      schema: StructType,
      context: TaskContext): Iterator[InternalRow] = {
    val runner = new ArrowPythonWithNamedArgumentRunner(
      functions,
      evalType,
      arguments,
      schema,
      facts.timeZone,
      facts.largeTypes,
      runnerConf,
      facts.metrics,
      facts.artifacts,
      None) {
      override protected val pipelinedEnabled: Boolean = true
    }
    val expected = facts.output.drop(facts.read.length).map(_.dataType.transformRecursively {
      case own: UserDefinedType[_] => own.sqlType
    })
    runner.compute(groups, context.partitionId(), context).flatMap { batch =>
      Batches.requireTypes(batch, expected)
      batch.rowIterator().asScala
    }
  }
}

/** `@udf` without Arrow. */
private[sql] class PickledFunctions(facts: Facts, udfs: Seq[PythonUDF], binaryAsBytes: Boolean)
    extends ColumnFunctions(facts, udfs) {

  override protected def evaluate(
      functions: Seq[(ChainedPythonFunctions, Long)],
      arguments: Array[Array[ArgumentMetadata]],
      groups: Iterator[Iterator[InternalRow]],
      schema: StructType,
      context: TaskContext): Iterator[InternalRow] = {
    EvaluatePython.registerPicklers()
    val pickled = groups.flatMap { group =>
      BatchEvalPythonExec.getInputIterator(group, schema, limit, binaryAsBytes, -1L, facts.metrics)
    }
    val runner = new PythonUDFWithNamedArgumentsRunner(
      functions,
      PythonEvalType.SQL_BATCHED_UDF,
      arguments,
      facts.metrics,
      facts.artifacts,
      None) {
      override protected val pipelinedEnabled: Boolean = true
    }
    val unpickler = new Unpickler
    val resultType =
      if (udfs.length == 1) udfs.head.dataType
      else StructType(udfs.map(udf => StructField("", udf.dataType, udf.nullable)))
    val fromJava = EvaluatePython.makeFromJava(resultType)
    val single = new GenericInternalRow(1)
    runner.compute(pickled, context.partitionId(), context).flatMap { batch =>
      unpickler.loads(batch).asInstanceOf[java.util.ArrayList[Any]].asScala
    }.map { result =>
      facts.metrics("pythonNumRowsReceived") += 1
      if (udfs.length == 1) {
        single(0) = fromJava(result)
        single
      } else {
        fromJava(result).asInstanceOf[InternalRow]
      }
    }
  }
}

/** `mapInPandas` and `mapInArrow`. */
private[sql] class MapFunction(
    facts: Facts,
    function: Seq[(ChainedPythonFunctions, Long)],
    name: String,
    made: DataType,
    evalType: Int,
    runnerConf: Map[String, String])
    extends Functions(facts) {

  override def names: Seq[String] = Seq(name)

  override protected def results(arrived: Arrived, context: TaskContext): Iterator[InternalRow] = {
    // Wrapped in another row, so that Python takes it for a table.
    val rows = arrived.map(row => InternalRow(row))
    val runner = new ArrowPythonRunner(
      function,
      evalType,
      Array(Array(0)),
      StructType(Array(StructField("struct", DataTypeUtils.fromAttributes(facts.read)))),
      facts.timeZone,
      facts.largeTypes,
      runnerConf,
      facts.metrics,
      facts.artifacts,
      None) {
      override protected val pipelinedEnabled: Boolean = true
    }
    val toUnsafe = UnsafeProjection.create(facts.output, facts.output)
    runner.compute(Arrived.groups(arrived, rows, limit), context.partitionId(), context).flatMap { batch =>
      if (SQLConf.get.pysparkArrowValidateSchema) Batches.requireType(batch, made, evalType)
      val struct = batch.column(0).asInstanceOf[ArrowColumnVector]
      val flat = new ColumnarBatch(facts.output.indices.map(struct.getChild).toArray)
      flat.setNumRows(batch.numRows())
      flat.rowIterator().asScala
    }.map(toUnsafe)
  }
}
