package org.apache.spark.sql.execution.python.tailrace

import org.apache.spark.JobArtifactSet
import org.apache.spark.api.python.{ChainedPythonFunctions, PythonEvalType}
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, CreateNamedStruct, Expression, GetStructField, Literal, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{ArrowEvalPython, BatchEvalPython, LogicalPlan, MapInArrow, MapInPandas}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{DeserializeToObjectExec, MapPartitionsExec, SerializeFromObjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonPickleBatchMetrics, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf

/**
 * Plans the Python functions of a real-time query so that rows flow.
 *
 * Spark's own operators for them wait for a batch of rows to fill, and are not on its list for real time. Here they become a
 * function over a partition's rows, which is on that list; everything else that Spark refuses stays refused, by Spark.
 */
object RealTimePython {

  /** Let real-time queries of a session run Python functions. */
  def install(session: SparkSession): Unit = {
    val experimental = session.experimental
    if (!experimental.extraStrategies.contains(Carry)) {
      experimental.extraStrategies = experimental.extraStrategies :+ Carry
    }
  }

  private object Carry extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
      case ArrowEvalPython(udfs, results, child, evalType) if isRealTime(child) =>
        carried(child, child.output ++ results) { facts =>
          new ArrowFunctions(facts, udfs, evalType, ArrowPythonRunner.getPythonRunnerConfMap(conf))
        }
      case BatchEvalPython(udfs, results, child) if isRealTime(child) =>
        carried(child, child.output ++ results)(new PickledFunctions(_, udfs, conf.pysparkBinaryAsBytes))
      case MapInPandas(function: PythonUDF, output, child, false, None) if isRealTime(child) =>
        carried(child, output)(mapped(_, function, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF))
      case MapInArrow(function: PythonUDF, output, child, false, None) if isRealTime(child) =>
        carried(child, output)(mapped(_, function, PythonEvalType.SQL_MAP_ARROW_ITER_UDF))
      case _ => Nil
    }

    private def conf: SQLConf = SQLConf.get

    private def mapped(facts: Facts, function: PythonUDF, evalType: Int): Functions = {
      val chained = Seq((ChainedPythonFunctions(Seq(function.func)), function.resultId.id))
      new MapFunction(
        facts, chained, function.name, function.dataType, evalType, ArrowPythonRunner.getPythonRunnerConfMap(conf))
    }

    /** Rows as objects, the function over them, its objects as rows: three operators of Spark's own. */
    private def carried(child: LogicalPlan, output: Seq[Attribute])(make: Facts => Functions): Seq[SparkPlan] = {
      val read = child.output
      val struct = CreateNamedStruct(read.flatMap(column => Seq[Expression](Literal(column.name), column)))
      val objects = DeserializeToObjectExec(struct, AttributeReference("row", struct.dataType, nullable = false)(), planLater(child))
      val facts = Facts(read, output, conf.sessionLocalTimeZone, conf.arrowUseLargeVarTypes, metrics, artifacts)
      val made = AttributeReference("row", DataTypeUtils.fromAttributes(output), nullable = false)()
      val mapped = MapPartitionsExec(make(facts), made, objects)
      val columns = output.zipWithIndex.map { case (column, index) =>
        Alias(GetStructField(made, index), column.name)(column.exprId, column.qualifier, Some(column.metadata))
      }
      SerializeFromObjectExec(columns, mapped) :: Nil
    }

    private def isRealTime(plan: LogicalPlan): Boolean = plan.collectLeaves().exists {
      case scan: StreamingDataSourceV2ScanRelation => scan.relation.realTimeModeDuration.isDefined
      case _ => false
    }

    private def artifacts: Option[String] = JobArtifactSet.getCurrentJobArtifactState.map(_.uuid)

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
