package org.apache.spark.sql.execution.python.tailrace

import java.util.UUID

import org.apache.spark.JobArtifactSet
import org.apache.spark.api.python.PythonEvalType
import org.apache.spark.sql.catalyst.expressions.{Alias, Attribute, AttributeReference, BoundReference, CreateNamedStruct, Expression, GetStructField, Literal, PythonUDF}
import org.apache.spark.sql.catalyst.plans.logical.{ArrowEvalPython, BatchEvalPython, LogicalPlan, MapInArrow, MapInPandas, TransformWithStateInPySpark}
import org.apache.spark.sql.catalyst.types.DataTypeUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{DeserializeToObjectExec, MapPartitionsExec, SerializeFromObjectExec, SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.metric.{SQLMetric, SQLMetrics}
import org.apache.spark.sql.execution.python.{ArrowPythonRunner, PythonPickleBatchMetrics, PythonSQLMetrics}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.tailrace.DeadLetters

/**
 * Plans the Python functions of a query for real time.
 *
 * Spark's own operators for Python wait for a batch of rows to fill, and Spark's real-time allowlist does not contain them. Here
 * they become a function over a partition's rows, whose operator is on the allowlist. Spark still refuses everything else.
 */
object RealTimePython {

  /**
   * Let the engine run the Python functions of a session's query.
   *
   * @param query the name of the query, for metrics
   * @param worker the pickled worker code
   * @param timeoutMs how long a function may take for one call
   * @param deadLetters the topic for records on which a function fails; null if the query fails instead
   * @param always whether also in micro-batch and in batch, where Spark's own operators write no dead letters
   */
  def install(
      session: SparkSession,
      query: String,
      worker: Array[Byte],
      timeoutMs: Long,
      deadLetters: DeadLetters,
      always: Boolean): FunctionCostListener = {
    val costs = new FunctionCosts
    costs.register(session.sparkContext, Some("tailrace Python functions"), countFailedValues = true)
    val settings =
      PythonSettings(UUID.randomUUID().toString, worker, timeoutMs, FailedRecords(Option(deadLetters)), costs)
    val experimental = session.experimental
    experimental.extraStrategies =
      experimental.extraStrategies.filterNot(_.isInstanceOf[PythonStrategy]) :+ new PythonStrategy(settings, always)
    if (session.sessionState.columnarRules.contains(RealTimeState)) {
      experimental.extraOptimizations = experimental.extraOptimizations.filterNot(_ == RealTimeState.Mark) :+ RealTimeState.Mark
    }
    new FunctionCostListener(session.sparkContext, query, settings.id, costs)
  }

  private class PythonStrategy(val settings: PythonSettings, always: Boolean) extends SparkStrategy {
    override def apply(plan: LogicalPlan): Seq[SparkPlan] = plan match {
      case ArrowEvalPython(udfs, results, child, evalType) if appliesTo(child) =>
        planned(child, child.output ++ results)(new ArrowFunctions(_, FunctionCalls.of(udfs), evalType))
      case BatchEvalPython(udfs, results, child) if appliesTo(child) =>
        planned(child, child.output ++ results)(new PickledFunctions(_, FunctionCalls.of(udfs), conf.pysparkBinaryAsBytes))
      case MapInPandas(function: PythonUDF, output, child, false, None) if appliesTo(child) =>
        planned(child, output)(mapFunction(_, function, PythonEvalType.SQL_MAP_PANDAS_ITER_UDF))
      case MapInArrow(function: PythonUDF, output, child, false, None) if appliesTo(child) =>
        planned(child, output)(mapFunction(_, function, PythonEvalType.SQL_MAP_ARROW_ITER_UDF))
      case RealTimeState.Processor(state: TransformWithStateInPySpark) => RealTimeState.stated(state, planLater) :: Nil
      case _ => Nil
    }

    private def conf: SQLConf = SQLConf.get

    private def mapFunction(operator: PythonOperator, function: PythonUDF, evalType: Int): PythonFunctions =
      new MapFunction(
        operator,
        function.func,
        function.name,
        function.dataType,
        evalType,
        function.children.collectFirst { case origin: RecordOrigin => origin })

    /** Plan three of Spark's own operators: rows to objects, the function over the objects, objects to rows. */
    private def planned(child: LogicalPlan, output: Seq[Attribute])(
        functionsOf: PythonOperator => PythonFunctions): Seq[SparkPlan] = {
      val input = child.output
      val struct = structOf(input)
      val objects = DeserializeToObjectExec(struct, AttributeReference("row", struct.dataType, nullable = false)(), planLater(child))
      val operator = operatorOf(input, output, pythonOperators(child), settings)
      rowsOf(output, MapPartitionsExec(functionsOf(operator), rowObject(output), objects)) :: Nil
    }

    private def appliesTo(plan: LogicalPlan): Boolean = always || isRealTime(plan)
  }

  /** How many operators of a plan call Python functions. */
  private[tailrace] def pythonOperators(plan: LogicalPlan): Int = plan.collect {
    case _: ArrowEvalPython | _: BatchEvalPython | _: MapInPandas | _: MapInArrow => 1
  }.sum

  /** Whether a plan reads a stream in real time. */
  private[tailrace] def isRealTime(plan: LogicalPlan): Boolean = plan.collectLeaves().exists {
    case scan: StreamingDataSourceV2ScanRelation => scan.relation.realTimeModeDuration.isDefined
    case _ => false
  }

  /** What the engine needs to run Python functions of a session's query, if it runs them. */
  private[tailrace] def settingsOf(session: SparkSession): Option[PythonSettings] =
    session.experimental.extraStrategies.collectFirst { case strategy: PythonStrategy => strategy.settings }

  private[tailrace] def operatorOf(
      input: Seq[Attribute],
      output: Seq[Attribute],
      below: Int,
      settings: PythonSettings): PythonOperator = {
    val conf = SQLConf.get
    PythonOperator(
      input,
      output,
      conf.sessionLocalTimeZone,
      conf.arrowUseLargeVarTypes,
      ArrowPythonRunner.getPythonRunnerConfMap(conf),
      metrics,
      JobArtifactSet.getCurrentJobArtifactState.map(_.uuid),
      below,
      settings)
  }

  /** These columns as one object. */
  private[tailrace] def structOf(columns: Seq[Attribute]): Expression =
    CreateNamedStruct(columns.flatMap(column => Seq[Expression](Literal(column.name), column)))

  /** The object that holds a row of these columns. */
  private[tailrace] def rowObject(columns: Seq[Attribute]): AttributeReference =
    AttributeReference("row", DataTypeUtils.fromAttributes(columns), nullable = false)()

  /** The rows of an operator that returns them as objects. */
  private[tailrace] def rowsOf(output: Seq[Attribute], objects: SparkPlan): SparkPlan = {
    // Bound: without whole-stage code generation, Spark evaluates a serializer without binding it.
    val result = BoundReference(0, objects.output.head.dataType, nullable = false)
    val columns = output.zipWithIndex.map { case (column, index) =>
      Alias(GetStructField(result, index), column.name)(column.exprId, column.qualifier, Some(column.metadata))
    }
    SerializeFromObjectExec(columns, objects)
  }

  /** The metrics that Spark's runners update. The function holds them because none of the three operators has them. */
  private def metrics: Map[String, SQLMetric] = {
    val context = SparkSession.active.sparkContext
    val sizes = PythonSQLMetrics.pythonSizeMetricsDesc ++ PythonPickleBatchMetrics.pickleBatchSizeMetricsDesc
    val counts = PythonSQLMetrics.pythonOtherMetricsDesc ++ PythonPickleBatchMetrics.pickleBatchCountMetricsDesc
    sizes.map { case (key, label) => key -> SQLMetrics.createSizeMetric(context, label) } ++
      PythonSQLMetrics.pythonTimingMetricsDesc.map { case (key, label) =>
        key -> SQLMetrics.createTimingMetric(context, label)
      } ++
      counts.map { case (key, label) => key -> SQLMetrics.createMetric(context, label) }
  }
}
