package org.apache.spark.sql.execution.python.tailrace

import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.spark.JobArtifactSet
import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, BoundReference, CreateNamedStruct, Expression, GetStructField, Literal, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{ArrowEvalPython, BatchEvalPython, LogicalPlan, MapInArrow, MapInPandas}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{DeserializeToObjectExec, MapPartitionsExec, SerializeFromObjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonPickleBatchMetrics, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.tailrace.DeadLetters

/**
 * Plans the Python functions of a query so that rows flow.
 *
 * Spark's own operators for them wait for a batch of rows to fill, and are not on its list for real time. Here they become a
 * function over a partition's rows, which is on that list; everything else that Spark refuses stays refused, by Spark.
 */
object RealTimePython {

  /**
   * Let queries of a session run Python functions on what has arrived.
   *
   * @param query its name, for metrics
   * @param half the pickled Python half of the engine
   * @param limitMs how long a function may take over what it was given
   * @param deadLetters where records go on which a function fails; null where that ends the query
   * @param always whether also in micro-batch and in batches, where Spark's own operators know no dead letters
   */
  def install(
      session: SparkSession,
      query: String,
      half: Array[Byte],
      limitMs: Long,
      deadLetters: DeadLetters,
      always: Boolean): RunningFunctions = {
    val costs = new FunctionCosts
    costs.register(session.sparkContext, Some("tailrace Python functions"), countFailedValues = true)
    val run = PythonRun(UUID.randomUUID().toString, half, limitMs, FailedRecords(Option(deadLetters)), costs)
    val experimental = session.experimental
    experimental.extraStrategies =
      experimental.extraStrategies.filterNot(_.isInstanceOf[Carry]) :+ new Carry(run, always)
    new RunningFunctions(session.sparkContext, query, run.id, costs)
  }

  def deadLetters(pipeline: String, topic: String, producer: java.util.Map[String, String]): DeadLetters =
    DeadLetters(pipeline, topic, producer.asScala.toMap)

  private class Carry(run: PythonRun, always: Boolean) extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
      case ArrowEvalPython(udfs, results, child, evalType) if isCarried(child) =>
        carried(child, child.output ++ results)(new ArrowFunctions(_, Calls.of(udfs), evalType))
      case BatchEvalPython(udfs, results, child) if isCarried(child) =>
        carried(child, child.output ++ results)(new PickledFunctions(_, Calls.of(udfs), conf.pysparkBinaryAsBytes))
      case MapInPandas(function: PythonUDF, output, child, false, None) if isCarried(child) =>
        carried(child, output)(mapped(_, function, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF))
      case MapInArrow(function: PythonUDF, output, child, false, None) if isCarried(child) =>
        carried(child, output)(mapped(_, function, PythonEvalType.SQL_MAP_ARROW_ITER_UDF))
      case _ => Nil
    }

    private def conf: SQLConf = SQLConf.get

    private def mapped(facts: Facts, function: PythonUDF, evalType: Int): Functions =
      new MapFunction(
        facts,
        function.func,
        function.name,
        function.dataType,
        evalType,
        function.children.collectFirst { case origin: Origin => origin })

    /** Rows as objects, the function over them, its objects as rows: three operators of Spark's own. */
    private def carried(child: LogicalPlan, output: Seq[Attribute])(make: Facts => Functions): Seq[SparkPlan] = {
      val read = child.output
      val struct = CreateNamedStruct(read.flatMap(column => Seq[Expression](Literal(column.name), column)))
      val objects = DeserializeToObjectExec(struct, AttributeReference("row", struct.dataType, nullable = false)(), planLater(child))
      val facts = Facts(
        read,
        output,
        conf.sessionLocalTimeZone,
        conf.arrowUseLargeVarTypes,
        ArrowPythonRunner.getPythonRunnerConfMap(conf),
        metrics,
        JobArtifactSet.getCurrentJobArtifactState.map(_.uuid),
        run)
      val made = AttributeReference("row", DataTypeUtils.fromAttributes(output), nullable = false)()
      val mapped = MapPartitionsExec(make(facts), made, objects)
      // Bound: without whole-stage code generation, Spark evaluates a serializer without binding it.
      val result = BoundReference(0, made.dataType, nullable = false)
      val columns = output.zipWithIndex.map { case (column, index) =>
        Alias(GetStructField(result, index), column.name)(column.exprId, column.qualifier, Some(column.metadata))
      }
      SerializeFromObjectExec(columns, mapped) :: Nil
    }

    private def isCarried(plan: LogicalPlan): Boolean = always || plan.collectLeaves().exists {
      case scan: StreamingDataSourceV2ScanRelation => scan.relation.realTimeModeDuration.isDefined
      case _ => false
    }

    /** What Spark's runners count; no operator shows them, so that they are kept with the function. */
    private def metrics: Map[String, SQLMetric] = {
      val context = SparkSession.active.sparkContext
      val sizes = PythonSQLMetrics.pythonSizeMetricsDesc ++ PythonPickleBatchMetrics.pickleBatchSizeMetricsDesc
      val counts = PythonSQLMetrics.pythonOtherMetricsDesc ++ PythonPickleBatchMetrics.pickleBatchCountMetricsDesc
      sizes.map { case (key, words) => key -> SQLMetrics.createSizeMetric(context, words) } ++
        PythonSQLMetrics.pythonTimingMetricsDesc.map { case (key, words) =>
          key -> SQLMetrics.createTimingMetric(context, words)
        } ++
        counts.map { case (key, words) => key -> SQLMetrics.createMetric(context, words) }
    }
  }
}
